package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
)

// settings are the numbers of the demonstration.
type settings struct {
	items, buyers int
	ttl           time.Duration // TTL in the sale in which an instance is suspended
}

// instances are the names of the instances.
var instances = []string{"a", "b", "c"}

// A sale is one part of the demonstration, with new instances and a new database.
type sale struct {
	title   string
	args    []string // of all instances
	suspend bool     // suspend instance a in the middle of a purchase
	redis   bool     // stock and orders are on Redis
}

// A result is what a sale has left in the database, and what the instances have printed.
type result struct {
	left, orders           int
	sold, soldOut, refused int
	took                   time.Duration
}

// run plays all sales and returns one line about their results.
func (s *settings) run(stage *fleet.Stage) (proof string, err error) {
	sales := []sale{
		{title: "no lock", args: []string{"-without-lock"}},
		{title: "lock, handed over between the goroutines of an instance"},
		{title: "lock, given back to the store after every purchase", args: []string{"-no-handover"}},
		{title: "lock and fence, and an instance is suspended in the middle of a purchase", args: []string{"-ttl", s.ttl.String()}, suspend: true},
	}
	if strings.HasPrefix(stage.Store, "redis://") || strings.HasPrefix(stage.Store, "rediss://") {
		sales = append(sales, sale{title: "the same, with stock and orders on Redis", args: []string{"-redis", "-ttl", s.ttl.String()}, suspend: true, redis: true})
	}
	results := make([]result, len(sales))
	for i, sa := range sales {
		r, err := s.play(stage, sa)
		if err != nil {
			return "", fmt.Errorf("%s: %w", sa.title, err)
		}
		fmt.Fprintf(stage.Out, "   => %d items, %d orders, %d left; %d buyers in %.1f s: %.0f buyers a second\n",
			s.items, r.orders, r.left, s.buyers, r.took.Seconds(), float64(s.buyers)/r.took.Seconds())
		results[i] = r
		if i == 0 {
			if r.orders <= s.items {
				return "", fmt.Errorf("%s: %d orders for %d items: the buyers did not compete", sa.title, r.orders, s.items)
			}
			continue
		}
		refused := 0
		if sa.suspend {
			refused = 1
		}
		if r.orders != s.items || r.left != 0 || r.sold != r.orders || r.refused != refused || r.sold+r.soldOut+r.refused != s.buyers {
			return "", fmt.Errorf("%s: %+v: want %d sold, %d refused and nothing left", sa.title, r, s.items, refused)
		}
	}
	unlocked, handover, noHandover, suspended := results[0], results[1], results[2], results[3]
	return fmt.Sprintf("%d items, %d buyers, 3 instances: %d orders, %d write of a suspended holder refused (without the lock: %d orders); %.0f buyers a second, %.0f without hand-over",
		s.items, s.buyers, suspended.orders, suspended.refused, unlocked.orders,
		float64(s.buyers)/handover.took.Seconds(), float64(s.buyers)/noHandover.took.Seconds()), nil
}

// The books of a sale are the records of its stock and its orders.
type books interface {
	count(ctx context.Context) (left, orders int, err error)
	close()
}

type database struct{ *sql.DB }

// openBooks creates the books of a sale, and returns the name under which instances find them.
func (s *settings) openBooks(stage *fleet.Stage, onRedis bool) (books, string, error) {
	if onRedis {
		return createOnRedis(stage.Ctx, stage.Store, s.items)
	}
	db, path, err := stage.Database(`
		CREATE TABLE stock (left INTEGER NOT NULL);
		CREATE TABLE orders (id INTEGER PRIMARY KEY, buyer INTEGER NOT NULL UNIQUE);
		INSERT INTO stock VALUES (?)`, s.items)
	return database{db}, path, err
}

func (db database) count(ctx context.Context) (left, orders int, err error) {
	err = db.QueryRowContext(ctx, "SELECT left, (SELECT count(*) FROM orders) FROM stock").Scan(&left, &orders)
	return left, orders, err
}

func (db database) close() { db.Close() }

type keys struct {
	client rueidis.Client
	keys   []string
}

func createOnRedis(ctx context.Context, url string, items int) (books, string, error) {
	client, err := openRedis(url)
	if err != nil {
		return nil, "", err
	}
	name := fmt.Sprintf("example-stock-%d", time.Now().UnixNano())
	shop, err := newRedisShop(client, name)
	if err != nil {
		client.Close()
		return nil, "", err
	}
	k := keys{client, shop.keys}
	if err := client.Do(ctx, client.B().Set().Key(k.keys[0]).Value(fmt.Sprint(items)).Build()).Error(); err != nil {
		k.close()
		return nil, "", err
	}
	return k, name, nil
}

func (k keys) count(ctx context.Context) (left, orders int, err error) {
	stock, err := k.client.Do(ctx, k.client.B().Get().Key(k.keys[0]).Build()).AsInt64()
	if err != nil {
		return 0, 0, err
	}
	n, err := k.client.Do(ctx, k.client.B().Llen().Key(k.keys[1]).Build()).AsInt64()
	return int(stock), int(n), err
}

// close also removes the keys of the sale, and the key beside the stock that holds the highest
// token.
func (k keys) close() {
	all := append(slices.Clip(k.keys), "holdfast:fence:"+k.keys[0])
	k.client.Do(context.Background(), k.client.B().Del().Key(all...).Build())
	k.client.Close()
}

// play runs one sale.
func (s *settings) play(stage *fleet.Stage, sa sale) (r result, err error) {
	f := stage.Part(sa.title)
	defer f.Close()
	books, data, err := s.openBooks(stage, sa.redis)
	if err != nil {
		return r, err
	}
	defer books.close()
	for i, name := range instances {
		first, next := i*s.buyers/len(instances), (i+1)*s.buyers/len(instances)
		args := append([]string{"-data", data, "-first", fmt.Sprint(first), "-buyers", fmt.Sprint(next - first)}, sa.args...)
		if sa.suspend && name == "a" {
			args = append(args, "-pause")
		}
		f.Start(name, args...)
	}
	for _, name := range instances {
		f.Await(name, "open")
	}

	start := time.Now()
	f.Tell("a", "sell")
	if sa.suspend {
		f.Await("a", "charges the card")
		f.Suspend("a")
	}
	for _, name := range instances[1:] {
		f.Tell(name, "sell")
	}
	for _, name := range slices.Backward(instances) { // a is the last
		if sa.suspend && name == "a" {
			f.Resume("a")
			f.Tell("a", "go on")
		}
		closed := f.Await(name, "closed: ")
		f.Do(func() error {
			var sold, soldOut, refused int
			_, err := fmt.Sscanf(closed, "sold %d, sold out %d, refused %d", &sold, &soldOut, &refused)
			r.sold, r.soldOut, r.refused = r.sold+sold, r.soldOut+soldOut, r.refused+refused
			return err
		})
	}
	r.took = time.Since(start)
	for _, name := range instances {
		f.Finish(name)
	}
	f.Do(func() (err error) {
		r.left, r.orders, err = books.count(stage.Ctx)
		return err
	})
	return r, f.Err()
}
