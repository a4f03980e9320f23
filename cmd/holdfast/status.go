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
	statusDelay = 300 * time.Millisecond // no line for a wait that is over before it is read
	statusDraw  = 120 * time.Millisecond
	statusAsk   = time.Second // how often the store is asked who holds the lock
)

// A statusLine shows on a terminal what run waits for. A nil one shows nothing.
type statusLine struct {
	name  string
	begin time.Time
	asked chan string // what an answer of the store says
	text  string
	next  time.Time // when to ask again
	drawn bool
	turn  int
}

// newStatusLine is nil unless people look at stderr.
func newStatusLine(name string) *statusLine {
	if !tty.Fancy(os.Stderr) {
		return nil
	}
	return &statusLine{name: name, begin: time.Now(), asked: make(chan string, 1)}
}

// draw returns the line to show. It is called often, and asks the store now and then.
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
				return // the lock call says so, if it lasts
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
	line := fmt.Sprintf("%c %s, waiting for %q%s", frames[s.turn], short(now.Sub(s.begin)), s.name, s.text)
	columns, _ := tty.Size(os.Stderr)
	if columns > 0 {
		line = cut(clean(line), columns-1)
	}
	s.drawn = true
	return "\r" + line + "\x1b[K"
}

// clear returns what removes the line, which must come before anything else.
func (s *statusLine) clear() string {
	if s == nil || !s.drawn {
		return ""
	}
	s.drawn = false
	return "\r\x1b[K"
}

// describeWait says who holds the lock and what place the owner has in the queue.
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
