package sqlitestore_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/diagnosistest"
	"github.com/holdfast-lock/holdfast/store"
)

func TestDiagnoseAFileInOrder(t *testing.T) {
	path, s := newFile(t)
	findings := new(diagnosistest.Record).Note(t, s.Diagnose(t.Context(), time.Second))
	diagnosistest.Want(t, findings, "sqlite.host note")
	if f := diagnosistest.Find(t, findings, "sqlite.journal"); f.Node != path || !strings.Contains(f.Found, "wal") {
		t.Errorf("%+v", f)
	}
	identity := diagnosistest.Find(t, findings, "store.identity").Found
	if other := diagnosistest.Find(t, open(t, path).Diagnose(t.Context(), time.Second), "store.identity").Found; other != identity {
		t.Errorf("one file has two identities: %s, %s", identity, other)
	}
	if other := diagnosistest.Find(t, open(t, newPath(t)).Diagnose(t.Context(), time.Second), "store.identity").Found; other == identity {
		t.Errorf("two files have one identity: %s", identity)
	}
	take(t, s, "a") // the store works as before
}

func TestDiagnoseFindsAFileThatWasRemovedOrReplaced(t *testing.T) {
	path, s := newFile(t)
	must(t, os.Remove(path))
	findings := s.Diagnose(t.Context(), time.Second)
	if f := diagnosistest.Find(t, findings, "sqlite.file"); f.Level != store.LevelFailure {
		t.Errorf("removed: %+v", f)
	}
	if f := diagnosistest.Find(t, findings, "sqlite.file-system"); f.Level != store.LevelUnknown {
		t.Errorf("the file system of a file that does not exist: %+v", f)
	}
	must(t, os.WriteFile(path, nil, 0o600)) // Open refuses the path while the -wal file is there
	if f := diagnosistest.Find(t, s.Diagnose(t.Context(), time.Second), "sqlite.file"); f.Level != store.LevelFailure {
		t.Errorf("replaced: %+v", f)
	}
}

func TestDiagnoseAfterCloseIsUnknown(t *testing.T) {
	s := open(t, newPath(t))
	s.Close()
	diagnosistest.Want(t, s.Diagnose(t.Context(), time.Second), "sqlite.host note", "sqlite.journal unknown")
}
