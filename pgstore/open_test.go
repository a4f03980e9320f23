package pgstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/pgstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestErrorsOfOpenSayWhatIsWrongInOneLineWithoutThePassword(t *testing.T) {
	const (
		secret  = "s3cr3t+pass"
		db      = "postgres://u:" + secret + "@127.0.0.1:1/db"
		refused = "connection refused" // no server listens, and the URL is valid
	)
	for url, says := range map[string]string{
		db:                      refused, // tried with and without TLS
		db + "?sslmode=disable": refused,
		"postgres://u:p@" + secret + "@127.0.0.1:1/db": refused, // not encoded
		"postgres://u:p#" + secret + "@127.0.0.1:1/db": refused,
		db + "?sslmode=nonsense":                       "sslmode", // refused by pgx
		db + "?sslmode=verify-full&sslrootcert=/none":  "no such file",
		db + "?connect_timeout=x":                      "invalid connect_timeout",
		db + "?pool_max_conns=x":                       "pool_max_conns",
		db + "?password=" + secret:                     `unknown parameter "password"`,
		db + "?create=maybe":                           "want true or false",
		db + "?schema=pg_x":                            "does not start with pg_",
		db + "/b":                                      "one database",
		"postgres://nobody:" + secret + "@" + server(t).Addr() + "/postgres?sslmode=disable": "check the user",
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		s, err := store.Open(ctx, url)
		cancel()
		if err == nil {
			s.Close()
			t.Errorf("%s was opened", url)
			continue
		}
		if errors.Is(err, holdfast.ErrInvalid) == (says == refused) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want an error that says %s", url, err, says)
		}
		if strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("the error shows the password: %v", err)
		}
		if strings.ContainsAny(err.Error(), "\n\t") || strings.Count(err.Error(), "dial error") > 1 {
			t.Errorf("the error is not one line: %q", err)
		}
	}
}

func TestAMissingPoolIsInvalid(t *testing.T) {
	if _, err := pgstore.New(nil); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("New(nil): %v", err)
	}
}

func TestAWrongPasswordOrDatabaseIsInvalid(t *testing.T) {
	p := servers.StartPostgres(t, servers.PostgresOptions{NoSync: true, Password: true})
	p.Must("CREATE ROLE app LOGIN PASSWORD 'right'; CREATE ROLE idle NOLOGIN PASSWORD 's3cr3t'")
	for url, says := range map[string]string{
		"postgres://app:s3cr3t@" + p.Addr() + "/postgres":    "check the user and the password",
		"postgres://nobody:s3cr3t@" + p.Addr() + "/postgres": "check the user and the password",
		"postgres://idle:s3cr3t@" + p.Addr() + "/postgres":   "check the user and the password",
		"postgres://app@" + p.Addr() + "/postgres":           "check the user and the password",
		"postgres://postgres@" + p.Addr() + "/nowhere":       "create the database",
	} {
		_, err := store.Open(t.Context(), url)
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v, want ErrInvalid that says %s", url, err, says)
		}
	}
}

func TestTLSAndAPasswordByURL(t *testing.T) {
	certs := servers.NewCertificates(t)
	p := servers.StartPostgres(t, servers.PostgresOptions{Password: true, TLS: certs, NoSync: true})
	p.Must("CREATE ROLE app LOGIN PASSWORD 'p@ss/word'; GRANT CREATE ON DATABASE postgres TO app")
	url := "postgres://app:p%40ss%2Fword@" + p.Addr() + "/postgres?sslmode=verify-full&sslrootcert=" + certs.CAFile
	open(t, strings.Replace(url, "%40", "@", 1))
	s := open(t, url)
	r := request("tls")
	granted(t, s, r)
	if got := p.Value("SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND usename = 'app'"); got == "0" {
		t.Error("no connection uses TLS")
	}
	p.Must("ALTER ROLE app SET default_transaction_isolation = 'repeatable read'")
	if _, err := store.Open(t.Context(), url); !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "ALTER ROLE") {
		t.Errorf("with another isolation level: %v, want ErrUnsupported that says what to do", err)
	}
	p.Terminate("usename = 'app'") // the next connections have that level too
	eventually(t, "calls do not fail", func() bool {
		_, err := s.Acquire(t.Context(), request("isolation"))
		if err == nil {
			t.Fatal("granted with another isolation level")
		}
		return strings.Contains(err.Error(), "ALTER ROLE")
	})
}
