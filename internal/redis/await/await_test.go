package await

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestCallReturnsTheResult(t *testing.T) {
	errTest := errors.New("test")
	for _, ctx := range []context.Context{t.Context(), context.Background()} {
		if n, err := Call(ctx, func() (int, error) { return 7, errTest }, nil); n != 7 || err != errTest {
			t.Errorf("%d, %v, want 7 and the error of the function", n, err)
		}
	}
}

func TestCallReturnsSoonAfterItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin, late := time.Now(), make(chan int, 1)
		_, err := Call(ctx, func() (int, error) {
			time.Sleep(time.Hour)
			return 7, nil
		}, func(n int) { late <- n })
		if took := time.Since(begin); took != time.Second+Grace || err != context.DeadlineExceeded {
			t.Errorf("%v after %v, want the error of the context after %v", err, took, time.Second+Grace)
		}
		if n := <-late; n != 7 {
			t.Errorf("the late value is %d, want 7", n)
		}
	})
}

func TestCallPrefersAResultThatComesWithTheEndOfItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n, err := Call(ctx, func() (int, error) {
			<-ctx.Done()
			time.Sleep(Grace / 2)
			return 7, nil
		}, nil)
		if n != 7 || err != nil {
			t.Errorf("%d, %v, want the result of the function", n, err)
		}
	})
}
