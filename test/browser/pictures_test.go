package browser

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/holdfast-lock/holdfast"
)

var update = flag.Bool("update", false, "write the pictures in docs, which takes a minute")

// maxPicture is the maximum size of a picture in bytes.
const maxPicture = 200_000

// picture takes a picture of a page. With -update it replaces the picture in docs.
func (x *tab) picture(name string) {
	x.t.Helper()
	ctx, cancel := x.limited()
	defer cancel()
	shot, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		x.t.Fatal(err)
	}
	path := filepath.Join("..", "..", "docs", name)
	if *update {
		small, err := shrink(shot)
		if err != nil {
			x.t.Fatal(err)
		}
		if err := os.WriteFile(path, small, 0o644); err != nil {
			x.t.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		x.t.Fatal(err)
	}
	if info.Size() > maxPicture {
		x.t.Errorf("%s: %d bytes, want at most %d", name, info.Size(), maxPicture)
	}
}

// shrink reduces a picture to its 256 most frequent colours.
func shrink(shot []byte) ([]byte, error) {
	full, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		return nil, err
	}
	bounds, counts := full.Bounds(), make(map[color.Color]int)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[full.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return cmp.Compare(counts[b], counts[a]) })
	palette := color.Palette(colours[:min(256, len(colours))])
	nearest := make(map[color.Color]uint8)
	for _, c := range colours {
		nearest[c] = uint8(palette.Index(c))
	}
	small := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			small.SetColorIndex(x, y, nearest[full.At(x, y)])
		}
	}
	var b bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, small)
	return b.Bytes(), err
}

func TestPicturesForTheDocumentation(t *testing.T) {
	s := newSite(t, allowAnn())
	s.day()
	x := newTab(t)
	x.visit(s.base)
	x.shows("order:10042")
	for _, picture := range []struct {
		name, page, shows string
		width, height     int64
		colours           string
	}{
		{"inspector.png", "", "order:10042", 1280, 1330, "light"},
		{"inspector-lock.png", "lock?name=stock:sku-7781", "Timeline", 1000, 950, "dark"},
		{"inspector-phone.png", "", "order:10042", 390, 844, "light"},
	} {
		x.screen(picture.width, picture.height, picture.colours)
		x.visit(s.base + picture.page)
		x.shows(picture.shows)
		x.picture(picture.name)
	}
}

// day takes about thirty locks, as a shop might. With -update it takes its time, so that the
// locks have different ages.
func (s *site) day() {
	s.t.Helper()
	ctx := s.t.Context()
	pause := func(d time.Duration) {
		if *update {
			time.Sleep(d)
		}
	}
	fail := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	hosts := []*holdfast.Client{s.open("web-1/4121/k7dq"), s.open("web-2/3990/m2xa"), s.open("web-3/4477/p9we"), s.open("worker-1/812/c4rt")}
	lock := func(i int, name string, opts ...holdfast.CallOption) *holdfast.Lease {
		lease, err := hosts[i%len(hosts)].Lock(ctx, name, opts...)
		fail(err)
		return lease
	}
	fail(hosts[3].Once(ctx, "report:2026-01-31", 20*time.Hour, func(context.Context) error { return nil }))
	lock(3, "leader:scheduler", holdfast.Meta("campaign"))
	lock(3, "nightly-backup", holdfast.Meta("pg_dump shop"), holdfast.TTL(2*time.Minute))
	pause(9 * time.Second)

	// One lock is busy, and its page is open.
	x := newTab(s.t)
	x.visit(s.base + "lock?name=stock:sku-7781")
	for i := range 24 {
		lease := lock(i, "stock:sku-7781", holdfast.Meta(fmt.Sprintf("order %d", 9000+i)))
		waiter := s.open(fmt.Sprintf("web-%d/%d/q%c1z", i%3+1, 3990+i, 'a'+i))
		got := make(chan *holdfast.Lease, 1)
		go func() {
			l, _ := waiter.Lock(ctx, "stock:sku-7781")
			got <- l
		}()
		pause(time.Duration(300+i*i*37%1500) * time.Millisecond)
		s.unlock(lease)
		l := <-got
		if l == nil {
			s.t.Fatal("not acquired")
		}
		pause(time.Duration(200+i*i*53%900) * time.Millisecond)
		s.unlock(l)
	}
	for i, name := range []string{"catalog", "catalog", "catalog"} {
		_, err := hosts[i].RLock(ctx, name)
		fail(err)
	}
	for i := range 3 {
		_, err := hosts[i].Semaphore("gpu", 8).Acquire(ctx, i+1)
		fail(err)
		pause(time.Second)
	}
	for i := range 18 {
		lock(i, fmt.Sprintf("order:%d", 10042+i*7))
		pause(200 * time.Millisecond)
	}
	for i := range 4 {
		lock(i, fmt.Sprintf("user:%d:profile", 551+i*91), holdfast.TTL(10*time.Second))
	}
	lock(0, "stock:sku-7781", holdfast.Meta("order 10042"))
	for i := range 5 {
		s.wait(fmt.Sprintf("web-%d/%d/w%c2k", i%3+1, 4121+i, 'a'+i), "stock:sku-7781")
		pause(800 * time.Millisecond)
	}
	s.wait("worker-2/77/t5vb", "order:10042")
	s.wait("worker-2/77/t5vc", "leader:scheduler")
	s.wait("worker-3/81/t5vd", "leader:scheduler")
	pause(11 * time.Second)
}
