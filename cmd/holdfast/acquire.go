package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/job"
)

// acquireTTL is the default TTL of a lock that holdfast does not renew: long enough for a script to
// reach its next line, and short enough to wait for if the script dies.
const acquireTTL = time.Minute

// A grantJSON is what acquire and renew print with --json.
type grantJSON struct {
	Name     string    `json:"name"`
	ID       string    `json:"id"`
	Token    int64     `json:"token,omitempty"`
	Owner    string    `json:"owner,omitempty"`
	Deadline time.Time `json:"deadline"`
}

func newAcquireCommand() *cobra.Command {
	o := &lockOptions{ttl: acquireTTL}
	var json bool
	cmd := &cobra.Command{
		Use:   "acquire [flags] NAME",
		Short: "Acquire a lock and leave it held, for scripts that cannot use run",
		Long: `Acquires the lock NAME, prints what identifies the grant, and exits. The lock
stays held for its TTL, and holdfast does not renew it: the script has to do
that with holdfast renew, and release the lock with holdfast release. After the
TTL another holder can acquire the lock, and nothing stops the script. Use run
if you can.

The output is for a shell to evaluate. It sets HOLDFAST_NAME, HOLDFAST_ID,
HOLDFAST_TOKEN, HOLDFAST_OWNER, and HOLDFAST_DEADLINE in seconds since 1970.`,
		Example: `    # In a script
    lock=$(holdfast acquire --ttl 5m deploy) && eval "$lock"
    ./deploy --fence "$HOLDFAST_TOKEN"
    holdfast release "$HOLDFAST_NAME" --id "$HOLDFAST_ID"`,
		RunE: func(_ *cobra.Command, args []string) error {
			o.name = args[0]
			if err := o.check(); err != nil {
				return err
			}
			return fail(o.acquireAndPrint(json), o.name)
		},
	}
	o.addTo(cmd, "how long the lock is held if it is not renewed")
	o.addModesTo(cmd)
	cmd.Flags().BoolVar(&json, "json", false, "print a line of JSON instead")
	return cmd
}

// acquireAndPrint acquires and prints the lock, which stays held unless there is an error.
func (o *lockOptions) acquireAndPrint(json bool) (err error) {
	ctx, cancel := untilSignal()
	defer cancel()
	job.SurviveWrites() // if the output cannot be written, the lock is released
	c, err := o.store.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil { // after a success, Close would release the lock
			c.Close()
		}
	}()
	o.extra = append(o.extra, holdfast.NoRenew())
	lease, err := o.acquire(ctx, c.Client)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx) // the signal arrived after the grant
	}
	if err != nil {
		return err
	}
	if text := shortenedTTL(o.ttl, c.store.ttl()); text != "" {
		complain("%s; renew the lock before that time is over", text)
	}
	if json {
		return outputJSON(grantJSON{o.name, lease.ID().String(), lease.Token(), c.Owner(), wall(lease.Deadline())})
	}
	return output(exportLines(lockVars(lease, lease.Deadline(), c.Owner())...))
}

func exportLines(vars ...string) string {
	var b strings.Builder
	for _, v := range vars {
		name, value, _ := strings.Cut(v, "=")
		fmt.Fprintf(&b, "export %s=%s\n", name, shellQuote(value))
	}
	return b.String()
}

// untilSignal returns a context that is cancelled by the first signal to end the process.
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
