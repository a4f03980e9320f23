package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/redisstore"
)

// A redisShop is a shop whose stock and orders are on Redis, together with the locks.
type redisShop struct {
	locks  *holdfast.Client
	client rueidis.Client
	keys   []string // of the stock and of the orders

	// charge is chargeCard, unless the demonstration adds a pause to it.
	charge func(ctx context.Context, buyer int) error
}

// newRedisShop returns a shop that uses one client for its data and for its locks.
func newRedisShop(client rueidis.Client, name string, opts ...holdfast.Option) (*redisShop, error) {
	store, err := redisstore.New(client)
	if err != nil {
		return nil, err
	}
	locks, err := holdfast.New(store, opts...)
	if err != nil {
		return nil, err
	}
	// The braces keep both keys on one server of a Cluster, which a script needs.
	keys := []string{"{" + name + "}:stock", "{" + name + "}:orders"}
	return &redisShop{locks: locks, client: client, keys: keys, charge: chargeCard}, nil
}

// Both scripts run only if the server has seen no newer token. The first one does not write, but
// from then on no earlier holder can change the stock that it has read.
const (
	readStock  = `return redis.call('GET', KEYS[1])`
	writeBooks = `redis.call('DECR', KEYS[1]); redis.call('RPUSH', KEYS[2], ARGV[1])`
)

// buy sells one item: see shop.buy.
func (s *redisShop) buy(ctx context.Context, buyer int) error {
	return s.locks.Do(ctx, product, func(ctx context.Context) error {
		token := holdfast.TokenFrom(ctx)
		reply, err := redisstore.FencedScript(ctx, s.client, token, readStock, s.keys)
		if err != nil {
			return err
		}
		left, err := strconv.Atoi(fmt.Sprint(reply))
		if err != nil {
			return fmt.Errorf("stock is not a number: %w", err)
		}
		if left <= 0 {
			return errSoldOut
		}
		if err := s.charge(ctx, buyer); err != nil {
			return err
		}
		// As in shop.buy, the fence decides from here on, not the context.
		ctx = context.WithoutCancel(ctx)
		if _, err := redisstore.FencedScript(ctx, s.client, token, writeBooks, s.keys, strconv.Itoa(buyer)); err != nil {
			return errors.Join(err, refundCard(ctx, buyer))
		}
		return nil
	})
}
