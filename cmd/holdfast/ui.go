package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/inspect"
	"github.com/holdfast-lock/holdfast/store"
)

type ui struct {
	store      storeFlag
	title      string
	listen     string
	hosts      []string
	path       string
	interval   time.Duration
	allowBreak bool
}

func newUICommand() *cobra.Command {
	u := &ui{interval: 2 * time.Second}
	cmd := &cobra.Command{
		Use:   "ui [flags]",
		Short: "Show the locks in a browser",
		Long: `Serves a page that shows all locks, live, until it is interrupted. It listens on
the loopback interface and only reads, unless you tell it otherwise.

With --allow-break users may release locks by force. They need the user name and
the password in HOLDFAST_UI_USER and HOLDFAST_UI_PASSWORD. Every release is
logged to stderr. To reach the page over a network, put a proxy with TLS in
front of it. If the proxy keeps the Host header of requests, name its host with
--host.`,
		Example: `  holdfast ui
  holdfast ui --store redis://127.0.0.1:6379 --listen 127.0.0.1:8080
  HOLDFAST_UI_USER=ann HOLDFAST_UI_PASSWORD=... holdfast ui --allow-break`,
		Args: arguments(0),
		RunE: func(*cobra.Command, []string) error {
			opts, err := u.options()
			if err != nil {
				return err
			}
			return u.store.withClient("", func(ctx context.Context, c *connection) error { return u.serve(ctx, c, opts) })
		},
	}
	u.store.addTo(cmd)
	cmd.Flags().StringVar(&u.title, "title", "", "`TEXT` in the header of the page and in the title of its tab (default the URL of the store, without its password and parameters)")
	cmd.Flags().StringVar(&u.listen, "listen", "127.0.0.1:7117", "`ADDRESS` and port to listen on; port 0 chooses a free one")
	cmd.Flags().StringSliceVar(&u.hosts, "host", nil, "also accept requests for the host `NAME`, if a proxy in front of it keeps their Host header; may be repeated")
	cmd.Flags().StringVar(&u.path, "path", "/", "`PATH` of the page, if a proxy in front of it needs one")
	cmd.Flags().Var((*durationValue)(&u.interval), "interval", "time between two listings of the store while somebody looks")
	cmd.Flags().BoolVar(&u.allowBreak, "allow-break", false, "let users with the password release locks by force")
	return cmd
}

// options checks the flags and returns the options of the inspector. It does not open the store.
func (u *ui) options() ([]inspect.Option, error) {
	if _, _, err := net.SplitHostPort(u.listen); err != nil {
		return nil, usagef("--listen %s: want an address and a port, such as 127.0.0.1:7117", u.listen)
	}
	if u.interval < minInterval {
		return nil, usagef("--interval %v: want at least %v", u.interval, minInterval)
	}
	opts := []inspect.Option{inspect.At(u.path), inspect.Every(u.interval), inspect.Logger(slog.New(slog.NewTextHandler(os.Stderr, nil)))}
	if !u.allowBreak {
		return opts, nil
	}
	user, password := os.Getenv("HOLDFAST_UI_USER"), os.Getenv("HOLDFAST_UI_PASSWORD")
	if user == "" || password == "" {
		return nil, usagef("--allow-break: set HOLDFAST_UI_USER and HOLDFAST_UI_PASSWORD to the user name and the password that users must enter")
	}
	return append(opts, inspect.AllowBreak(func(u, p string) bool {
		return same(u, user)&same(p, password) == 1
	})), nil
}

// same returns 1 if two texts are the same, and 0 otherwise. The time that it takes does not
// depend on the texts, not even on their lengths.
func same(a, b string) int {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:])
}

func (u *ui) serve(ctx context.Context, c *connection, opts []inspect.Option) error {
	opts = append(opts, inspect.Title(cmp.Or(u.title, u.store.text())))
	if d, ok := c.store.Store.(store.Diagnoser); ok {
		opts = append(opts, inspect.Checks(func(ctx context.Context) []store.Finding { return d.Diagnose(ctx, holdfast.DefaultTTL) }))
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", u.listen)
	if err != nil {
		return usagef("--listen: %w; choose a port that is free, or 0 for any", err)
	}
	handler := inspect.Handler(c.Client, opts...)
	addr := listener.Addr().(*net.TCPAddr)
	local := addr.IP.IsLoopback()
	if local || len(u.hosts) > 0 {
		handler = onlyHosts(handler, u.hosts)
	}
	if !local {
		complain("the page can be reached from other hosts, without TLS and, for reading, without a password")
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
		ReadTimeout: 15 * time.Second, // of requests that onlyHosts refuses; the inspector sets its own
	}
	host := addr.String()
	if addr.IP.IsUnspecified() {
		host = net.JoinHostPort("localhost", strconv.Itoa(addr.Port))
	}
	address := url.URL{Scheme: "http", Host: host, Path: strings.TrimSuffix(path.Clean("/"+u.path), "/") + "/"}
	if err := output(address.String() + "\n"); err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if server.Shutdown(limit) != nil {
		server.Close()
	}
	return nil
}

// onlyHosts refuses requests for hosts other than this one and the given names. A web site could
// otherwise read the page through a host name of its own that resolves to the loopback address.
func onlyHosts(next http.Handler, names []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
		named := slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, host) })
		if host != "localhost" && !named && (err != nil || !addr.IsLoopback()) {
			http.Error(w, "this page is for localhost only; a proxy with another host name needs: holdfast ui --host NAME", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
