package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/tty"
)

const (
	statusDelay = 300 * time.Millisecond // a shorter wait shows no line
	statusDraw  = 120 * time.Millisecond
	statusAsk   = time.Second // the interval at which the store is asked for the holder
)

// A statusLine shows on a terminal what run waits for. A nil statusLine shows nothing.
type statusLine struct {
	name  string
	begin time.Time
	asked chan string // receives descriptions of the holder and the queue
	text  string      // the last of them
	next  time.Time   // when to ask the store again
	drawn bool
	turn  int
}

// newStatusLine returns nil unless stderr is a terminal.
func newStatusLine(name string) *statusLine {
	if !tty.Fancy(os.Stderr) {
		return nil
	}
	return &statusLine{name: name, begin: time.Now(), asked: make(chan string, 1)}
}

// draw returns the line to show. It is called often, and asks the store every statusAsk.
func (s *statusLine) draw(ctx context.Context, c *holdfast.Client) string {
	now := time.Now()
	select {
	case s.text = <-s.asked:
	default:
	}
	if c != nil && now.After(s.next) {
		s.next = now.Add(statusAsk)
		go func() {
			info, err := c.Inspect(ctx, s.name)
			if err != nil {
				return // if the store keeps failing, the lock call returns the error
			}
			select {
			case s.asked <- describeWait(info, c.Owner()):
			default:
			}
		}()
	}
	if now.Sub(s.begin) < statusDelay {
		return ""
	}
	frames := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	s.turn = (s.turn + 1) % len(frames)
	line := clean(fmt.Sprintf("%c %s, waiting for %q%s", frames[s.turn], short(now.Sub(s.begin)), s.name, s.text))
	if columns, _ := tty.Size(os.Stderr); columns > 0 {
		line = cut(line, columns-1)
	}
	s.drawn = true
	return "\r" + line + "\x1b[K"
}

// clear returns the control sequence that removes the line. It must be written before other
// output.
func (s *statusLine) clear() string {
	if s == nil || !s.drawn {
		return ""
	}
	s.drawn = false
	return "\r\x1b[K"
}

// describeWait describes the holder of a lock, and the place of the owner in the queue.
func describeWait(info holdfast.Info, owner string) string {
	text := ""
	for i, w := range info.Waiters {
		if w.Owner == owner {
			text = fmt.Sprintf(" (%d of %d in the queue)", i+1, len(info.Waiters))
		}
	}
	if len(info.Holders) > 0 {
		text += ", " + describeHolder(&info.Holders[0])
		if n := len(info.Holders) - 1; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
	}
	return text
}
