package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/job"
)

// acquireTTL is how long a lock lives that nobody renews by itself: long enough for a
// script to come to its next line, short enough to wait for if it dies.
const acquireTTL = time.Minute

// A grantJSON is what acquire and renew print with --json.
type grantJSON struct {
	Name     string    `json:"name"`
	ID       string    `json:"id"`
	Token    int64     `json:"token,omitempty"`
	Owner    string    `json:"owner,omitempty"`
	Deadline time.Time `json:"deadline"`
}

func acquireCommand() *cli.Command {
	w := &want{ttl: acquireTTL}
	var json bool
	return &cli.Command{
		Name: "acquire", Args: "NAME",
		Short: "Take a lock and leave it held, for scripts that cannot use run",
		Long: `Takes the lock, prints what identifies it, and exits. The lock stays held for its TTL, one minute unless --ttl says otherwise, and nobody renews it: the script has to, with holdfast renew, and give it back with holdfast release. When the TTL is over the lock is another's, and nothing stops the script: prefer run.

The output is for a shell to evaluate: HOLDFAST_NAME, HOLDFAST_ID, HOLDFAST_TOKEN, HOLDFAST_OWNER, and HOLDFAST_DEADLINE in seconds since 1970.`,
		Flags: slices.Concat(w.flags("how long the lock is held unless it is renewed; default: 1m"), w.modeFlags(),
			[]*cli.Flag{cli.Bool("json", 0, &json, "print a line of JSON instead")}),
		Operands: []cli.Operand{{Name: "NAME", Kind: cli.Lock}}, Least: 1,
		Examples: []cli.Term{{
			Word: `lock=$(holdfast acquire --ttl 5m deploy) && eval "$lock"
  ./deploy --fence "$HOLDFAST_TOKEN"
  holdfast release "$HOLDFAST_NAME" --id "$HOLDFAST_ID"`, Text: "In a script",
		}},
		Run: func(operands, _ []string) int {
			w.name = operands[0]
			if err := w.check(); err != nil {
				complain("acquire: %v; see: holdfast acquire --help", err)
				return exitUsage
			}
			return w.acquire(json)
		},
	}
}

func (w *want) acquire(json bool) int {
	ctx, cancel := untilSignal()
	defer cancel()
	job.SurviveWrites() // a lock that nobody was told of is given back
	st, err := w.store.open(ctx)
	if err != nil {
		return fail(err, w.name)
	}
	c, err := holdfast.New(st)
	if err != nil {
		return fail(err, w.name)
	}
	w.more = append(w.more, holdfast.NoRenew())
	lease, err := w.take(ctx, c)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx) // a signal came in the last moment
	}
	if err != nil {
		c.Close()
		st.Close()
		return fail(err, w.name)
	}
	if less := grantedLess(w.ttl, st.ttl()); less != "" {
		complain("%s; renew the lock before that is over", less)
	}
	var code int
	if json {
		code = outputJSON(grantJSON{w.name, lease.ID().String(), lease.Token(), c.Owner(), lease.Deadline().Round(0)})
	} else {
		code = output(evalLines(lockVars(lease, lease.Deadline(), c.Owner())))
	}
	if code != 0 {
		c.Close() // nobody knows of it
		st.Close()
	}
	return code // and no Close, which gives everything back
}

// evalLines is for a shell to evaluate.
func evalLines(vars []lockVar) string {
	var b strings.Builder
	for _, v := range vars {
		fmt.Fprintf(&b, "export %s=%s\n", v.name, shellQuote(v.value))
	}
	return b.String()
}

// untilSignal is a context that ends with the first signal that asks to end.
func untilSignal() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 8)
	job.Notify(signals)
	go func() {
		for sig := range signals {
			if n, ends := job.Ends(sig); ends {
				cancel(&signalled{n})
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}
