package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
	"github.com/holdfast-lock/holdfast/fence/sqlfence"
)

// settings are the numbers of the demonstration.
type settings struct {
	store         string // URL; empty for a temporary SQLite file
	items, buyers int
	ttl           time.Duration // TTL in the sale in which an instance is suspended
}

// demo defines the flags of the demonstration, and returns the function that runs it on a store.
func demo() fleet.Demo {
	var s settings
	flag.IntVar(&s.items, "items", 500, "how many items there are")
	flag.IntVar(&s.buyers, "buyers", 5000, "how many buyers want one")
	flag.DurationVar(&s.ttl, "ttl", 3*time.Second, "how long a suspended holder keeps the lock")
	return func(ctx context.Context, store string) (proof string, err error) {
		s.store = store
		return run(ctx, os.Stdout, s)
	}
}

// instances are the names of the instances.
var instances = []string{"a", "b", "c"}

// A sale is one scenario, with new instances and a new database.
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
func run(ctx context.Context, out io.Writer, s settings) (proof string, err error) {
	folder, err := os.MkdirTemp("", "stock-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	if s.store == "" {
		s.store = "sqlite:" + filepath.Join(folder, "locks.db")
	}
	sales := []sale{
		{title: "no lock", args: []string{"-without-lock"}},
		{title: "lock, handed over between the goroutines of an instance"},
		{title: "lock, given back to the store after every purchase", args: []string{"-no-handover"}},
		{title: "lock and fence, and an instance is suspended in the middle of a purchase", args: []string{"-ttl", s.ttl.String()}, suspend: true},
	}
	if strings.HasPrefix(s.store, "redis://") || strings.HasPrefix(s.store, "rediss://") {
		sales = append(sales, sale{title: "the same, with stock and orders on Redis", args: []string{"-redis", "-ttl", s.ttl.String()}, suspend: true, redis: true})
	}
	results := make([]result, len(sales))
	for i, sa := range sales {
		fmt.Fprintf(out, "\n%d. %s\n", i+1, sa.title)
		data := filepath.Join(folder, fmt.Sprintf("shop%d.db", i))
		create := createDatabase
		if sa.redis {
			data, create = fmt.Sprintf("example-stock-%d", time.Now().UnixNano()), createOnRedis
		}
		r, err := sa.play(ctx, out, s, data, create)
		if err != nil {
			return "", fmt.Errorf("%s: %w", sa.title, err)
		}
		fmt.Fprintf(out, "   => %d items, %d orders, %d left; %d buyers in %.1f s: %.0f buyers a second\n",
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

func createDatabase(ctx context.Context, s settings, path string) (books, error) {
	db, err := openDatabase(path)
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, `
		CREATE TABLE stock (left INTEGER NOT NULL);
		CREATE TABLE orders (id INTEGER PRIMARY KEY, buyer INTEGER NOT NULL UNIQUE);
		INSERT INTO stock VALUES (?)`, s.items)
	if err == nil {
		err = sqlfence.SQLite.CreateTable(ctx, db)
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return database{db}, nil
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

func createOnRedis(ctx context.Context, s settings, name string) (books, error) {
	client, err := openRedis(s.store)
	if err != nil {
		return nil, err
	}
	shop, err := newRedisShop(client, name)
	if err != nil {
		client.Close()
		return nil, err
	}
	k := keys{client, shop.keys}
	if err := client.Do(ctx, client.B().Set().Key(k.keys[0]).Value(fmt.Sprint(s.items)).Build()).Error(); err != nil {
		k.close()
		return nil, err
	}
	return k, nil
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
func (sa sale) play(ctx context.Context, out io.Writer, s settings, data string, create func(context.Context, settings, string) (books, error)) (result, error) {
	books, err := create(ctx, s, data)
	if err != nil {
		return result{}, err
	}
	defer books.close()

	f := fleet.New(ctx, out, "HOLDFAST_STORE="+s.store)
	defer f.Close()
	for i, name := range instances {
		first, next := i*s.buyers/len(instances), (i+1)*s.buyers/len(instances)
		args := append([]string{"-data", data, "-first", fmt.Sprint(first), "-buyers", fmt.Sprint(next - first)}, sa.args...)
		if sa.suspend && name == "a" {
			args = append(args, "-pause")
		}
		if err := f.Start(name, args...); err != nil {
			return result{}, err
		}
	}
	for _, name := range instances {
		if _, err := f.Await(name, "open"); err != nil {
			return result{}, err
		}
	}

	start := time.Now()
	var r result
	if err := f.Tell("a", "sell"); err != nil {
		return result{}, err
	}
	if sa.suspend {
		if _, err := f.Await("a", "charges the card"); err != nil {
			return result{}, err
		}
		if err := f.Suspend("a"); err != nil {
			return result{}, err
		}
		fmt.Fprintln(out, "   a  suspended (SIGSTOP)")
	}
	for _, name := range instances[1:] {
		if err := f.Tell(name, "sell"); err != nil {
			return result{}, err
		}
	}
	for i := range instances {
		name := instances[len(instances)-1-i] // a is the last
		if sa.suspend && name == "a" {
			if err := errors.Join(f.Resume("a"), f.Tell("a", "go on")); err != nil {
				return result{}, err
			}
			fmt.Fprintln(out, "   a  wakes up (SIGCONT)")
		}
		closed, err := f.Await(name, "closed: ")
		if err != nil {
			return result{}, err
		}
		var sold, soldOut, refused int
		if _, err := fmt.Sscanf(closed, "sold %d, sold out %d, refused %d", &sold, &soldOut, &refused); err != nil {
			return result{}, err
		}
		r.sold, r.soldOut, r.refused = r.sold+sold, r.soldOut+soldOut, r.refused+refused
	}
	r.took = time.Since(start)
	for _, name := range instances {
		if err := f.Finish(name); err != nil {
			return result{}, err
		}
	}
	r.left, r.orders, err = books.count(ctx)
	return r, err
}
