// Not released: it holds tests of Holdfast, and nobody imports it.
module github.com/holdfast-lock/holdfast/test/faults

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/bsm/redislock v0.9.4
	github.com/go-redsync/redsync/v4 v4.17.0
	github.com/go-zookeeper/zk v1.0.4
	github.com/holdfast-lock/holdfast v0.0.0
	github.com/holdfast-lock/holdfast/etcdstore v0.0.0
	github.com/holdfast-lock/holdfast/mysqlstore v0.0.0
	github.com/holdfast-lock/holdfast/redisstore v0.0.0
	github.com/holdfast-lock/holdfast/sqlitestore v0.0.0
	github.com/holdfast-lock/holdfast/zkstore v0.0.0
	github.com/jackc/pgx/v5 v5.12.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/redis/rueidis v1.0.79
	go.etcd.io/etcd/client/v3 v3.6.14
	go.uber.org/zap v1.27.0
)

require (
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/ncruces/go-strftime v1.0.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	golang.org/x/sync v0.22.0 // indirect
	modernc.org/libc v1.72.0 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.11.0 // indirect
	modernc.org/sqlite v1.50.0 // indirect
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/coreos/go-semver v0.3.1 // indirect
	github.com/coreos/go-systemd/v22 v22.5.0 // indirect
	github.com/go-sql-driver/mysql v1.10.1 // indirect
	github.com/gogo/protobuf v1.3.2 // indirect
	github.com/golang/protobuf v1.5.4 // indirect
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.26.3 // indirect
	github.com/holdfast-lock/holdfast/pgstore v0.0.0
	go.etcd.io/etcd/api/v3 v3.6.14 // indirect
	go.etcd.io/etcd/client/pkg/v3 v3.6.14 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20260414002931-afd174a4e478 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260414002931-afd174a4e478 // indirect
	google.golang.org/grpc v1.82.1 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)

replace (
	github.com/holdfast-lock/holdfast => ../../
	github.com/holdfast-lock/holdfast/etcdstore => ../../etcdstore
	github.com/holdfast-lock/holdfast/mysqlstore => ../../mysqlstore
	github.com/holdfast-lock/holdfast/redisstore => ../../redisstore
	github.com/holdfast-lock/holdfast/redisstore/goredis => ../../redisstore/goredis
	github.com/holdfast-lock/holdfast/sqlitestore => ../../sqlitestore
	github.com/holdfast-lock/holdfast/zkstore => ../../zkstore
)

replace github.com/holdfast-lock/holdfast/pgstore => ../../pgstore
