module github.com/holdfast-lock/holdfast/test/faults

go 1.25.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/go-zookeeper/zk v1.0.4
	github.com/holdfast-lock/holdfast v0.0.0
	github.com/holdfast-lock/holdfast/redisstore v0.0.0
	github.com/holdfast-lock/holdfast/zkstore v0.0.0
	github.com/redis/rueidis v1.0.79
)

require golang.org/x/sys v0.47.0 // indirect

replace (
	github.com/holdfast-lock/holdfast => ../../
	github.com/holdfast-lock/holdfast/redisstore => ../../redisstore
	github.com/holdfast-lock/holdfast/zkstore => ../../zkstore
)
