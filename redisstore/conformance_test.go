package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/redis"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

func TestQuick(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Open: func(t testing.TB) store.Store {
			u, _ := store.ParseURL("redis://127.0.0.1:7911")
			s, err := openWith(context.Background(), u, redis.Config{Heartbeat: 2 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		TTL:   500 * time.Millisecond,
		Slack: 500 * time.Millisecond,
	})
}
