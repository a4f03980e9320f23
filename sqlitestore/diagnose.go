package sqlitestore

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/diagnosis"
	"github.com/holdfast-lock/holdfast/store"
)

// enoughSpace is for the log, which may become twice as long as maxLog, and for the file.
const enoughSpace = 4 * maxLog

var _ store.Diagnoser = (*Store)(nil)

// Diagnose checks whether the file is in a place that is safe for locks: see [store.Diagnoser].
func (s *Store) Diagnose(ctx context.Context, _ time.Duration) []store.Finding {
	findings := diagnosis.Run(s.file.path, &patient{s, ctx}, probes)
	return append(findings, diagnosis.Identify("%s", s.file.identity()), diagnosis.ClockUnneeded("the store uses the clock of this host"))
}

// A patient is the file to check.
type patient struct {
	*Store
	ctx context.Context
}

var probes = []diagnosis.Probe[*patient]{
	diagnosis.NewProbe("sqlite.host", store.LevelNote,
		"processes of other hosts, and of containers that do not share the file, are not excluded",
		"use a store on a server to lock between hosts",
		func(*patient) (bool, string, error) { return true, "locks reach the processes of one host only", nil }),
	diagnosis.NewProbe("sqlite.file", store.LevelFailure,
		"the file was removed or replaced: processes that open it now do not see the locks in the old file, so two processes can hold one name",
		"stop all programs that use the file, then start them again; keep clean-up jobs from removing it",
		func(p *patient) (bool, string, error) {
			if err := p.file.check(); err != nil {
				return true, err.Error(), nil
			}
			return false, "the file is the one that was opened", nil
		}),
	diagnosis.NewProbe("sqlite.file-system", store.LevelFailure,
		"on a file system that several hosts share, the locks and the shared memory of SQLite do not work: two processes can hold one name",
		"put the file on a local disk, such as /var/lib, or use a store on a server",
		func(p *patient) (bool, string, error) {
			kind, shared, _, err := fileSystem(p.file.path)
			return shared, "file system " + kind, err
		}),
	diagnosis.NewProbe("sqlite.space", store.LevelWarning,
		"when the disk is full, new names cannot be locked, and leases may be lost",
		"free some space, or put the file on another file system",
		func(p *patient) (bool, string, error) {
			free, err := freeSpace(p.file.path)
			return free < enoughSpace, fmt.Sprintf("%d MiB free", free>>20), err
		}),
	diagnosis.NewProbe("sqlite.overlay", store.LevelNote,
		"the file is in a layer of one container: other containers with the same path have another file, and it ends with the container",
		"put the file on a volume that all containers mount",
		func(p *patient) (bool, string, error) {
			kind, _, layered, err := fileSystem(p.file.path)
			return layered, "file system " + kind, err
		}),
	diagnosis.NewProbe("sqlite.journal", store.LevelWarning,
		"without a write-ahead log readers block writers, so listing locks delays renewals",
		"PRAGMA journal_mode = WAL; the store sets it when it opens the file",
		func(p *patient) (bool, string, error) {
			var mode string
			err := p.reading(p.ctx, func() error {
				row, err := p.read.get("PRAGMA journal_mode")
				if err == nil {
					mode = text(row[0])
				}
				return err
			})
			return mode != "wal", "journal mode " + mode, err
		}),
}
