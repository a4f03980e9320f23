package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/doctor"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	exitWarning = 1
	exitFailure = 2
)

func newDoctorCommand() *cobra.Command {
	var st storeFlag
	var json, problems bool
	ttl := holdfast.DefaultTTL
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Check whether a store is safe for locks",
		Long: `Checks how long a round trip takes, and on a scratch name that locks exclude
each other, are renewed, wake their waiters, expire and have growing tokens. Then
it reads the settings of the servers that make locks unsafe or slow. Each finding
says what can go wrong and what to do. It changes no setting. It takes about five
seconds. All checks are listed at
https://github.com/holdfast-lock/holdfast/blob/main/docs/doctor.md

A setting that cannot be read is unknown, and the finding says which right is
missing.

Exit code: 0 if all is well, 1 with warnings or unknown settings, 2 with
failures, 69 if the store cannot be reached.`,
		Example: `  holdfast doctor --store redis://127.0.0.1:6379
  holdfast doctor --problems
  holdfast doctor --json | jq 'select(.level != "ok")'`,
		Args: arguments(0),
		RunE: func(*cobra.Command, []string) error {
			ctx := context.Background()
			st.ttl = ttl
			return st.withStore(ctx, "", func(s *ttlStore) error {
				findings := doctor.Run(ctx, s.Store, ttl)
				if err := reportFindings(findings, json, problems); err != nil {
					return err
				}
				switch worst := doctor.Worst(findings); {
				case worst >= store.LevelFailure:
					return exitCode(exitFailure)
				case worst >= store.LevelUnknown:
					return exitCode(exitWarning)
				}
				return nil
			})
		},
	}
	st.addTo(cmd)
	cmd.Flags().Var((*durationValue)(&ttl), "ttl", "TTL of the locks that the store is to keep")
	cmd.Flags().BoolVar(&json, "json", false, "print each check as a line of JSON")
	cmd.Flags().BoolVar(&problems, "problems", false, "print only warnings and failures; the exit code is the same")
	return cmd
}

type findingJSON struct {
	ID     string `json:"id"`
	Node   string `json:"node,omitempty"`
	Level  string `json:"level"`
	Found  string `json:"found"`
	Risk   string `json:"risk,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

func reportFindings(findings []store.Finding, json, problems bool) error {
	if !json {
		return output(doctorText(findings, problems))
	}
	var lines []findingJSON
	for _, f := range findings {
		if !problems || isProblem(f) {
			lines = append(lines, findingJSON{f.ID, f.Node, f.Level.String(), f.Found, f.Risk, f.Remedy})
		}
	}
	return outputJSON(lines...)
}

func isProblem(f store.Finding) bool { return f.Level >= store.LevelWarning }

// doctorText returns findings as text for people. If a check found several servers in order, they
// share one line. The last line counts all findings, even if only problems are shown.
func doctorText(findings []store.Finding, problems bool) string {
	var b strings.Builder
	counts := make(map[store.Level]int)
	good := make(map[string]int) // servers without problems, by check
	for _, f := range findings {
		counts[f.Level]++
		if f.Level == store.LevelOK && f.Node != "" {
			good[f.ID]++
		}
	}
	for _, f := range findings {
		if problems && !isProblem(f) {
			continue
		}
		if n := good[f.ID]; f.Level == store.LevelOK && n > 1 {
			f.Found, f.Node = fmt.Sprintf("%s; and %d other servers are in order", f.Found, n-1), ""
			good[f.ID] = 0
		} else if f.Level == store.LevelOK && f.Node != "" && n == 0 {
			continue
		}
		fmt.Fprintf(&b, "%-8s %s: ", f.Level, f.ID)
		if f.Node != "" {
			fmt.Fprintf(&b, "%s: ", clean(f.Node))
		}
		fmt.Fprintf(&b, "%s\n", clean(f.Found))
		if f.Risk != "" {
			fmt.Fprintf(&b, "         risk: %s\n", clean(f.Risk))
		}
		if f.Remedy != "" {
			fmt.Fprintf(&b, "         do: %s\n", clean(f.Remedy))
		}
	}
	fmt.Fprintf(&b, "%d checks: ok %d, notes %d, unknown %d, warnings %d, failures %d\n", len(findings),
		counts[store.LevelOK], counts[store.LevelNote], counts[store.LevelUnknown], counts[store.LevelWarning], counts[store.LevelFailure])
	return b.String()
}
