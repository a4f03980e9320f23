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
	"github.com/holdfast-lock/holdfast/inspect"
)

var update = flag.Bool("update", false, "write the pictures in docs, which takes a minute")

// maxPicture is the maximum size of a picture in bytes. There are six.
const maxPicture = 100_000

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
	var palette color.Palette // without colours that look the same, which would leave no room for rare ones
	for _, c := range colours {
		if len(palette) < 256 && (len(palette) == 0 || differ(c, palette[palette.Index(c)])) {
			palette = append(palette, c)
		}
	}
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

// differ reports whether a person can tell two colours apart.
func differ(a, b color.Color) bool {
	const step = 6 << 8
	r, g, b1, _ := a.RGBA()
	x, y, z, _ := b.RGBA()
	return max(r, x)-min(r, x) > step || max(g, y)-min(g, y) > step || max(b1, z)-min(b1, z) > step
}

func TestPicturesForTheDocumentation(t *testing.T) {
	s := newSite(t, allowAnn(), inspect.Title("shop (memory)"), inspect.Every(500*time.Millisecond))
	s.visitors(9_900)
	s.day()
	x := newTab(t)
	take := func(name, page, shows string, width, height int64, colours string) {
		t.Helper()
		x.screen(width, height, colours)
		x.visit(s.base + page)
		x.shows(shows)
		x.picture(name)
	}
	const list, lock = "?sort=waiting", "lock?name=stock:sku-7781"
	take("inspector-lock.png", lock, "Timeline", 1000, 1200, "light")
	take("inspector-lock-dark.png", lock, "Timeline", 1000, 1200, "dark")
	take("inspector-lock-phone.png", lock+"#timeline", "Timeline", 390, 844, "dark")
	s.visitors(10_000)
	take("inspector.png", list, "10000 locks", 1280, 900, "light")
	take("inspector-dark.png", list, "10000 locks", 1280, 900, "dark")
	take("inspector-phone.png", list, "10000 locks", 390, 844, "light")
}

// day takes about thirty locks, as a shop might. With -update it takes its time, so that the locks have
// different ages.
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
	s.wait("worker-2/77/t5vc", "leader:scheduler")
	for i := range 6 {
		lease := lock(i, "stock:sku-7781", holdfast.Meta(fmt.Sprintf("order %d", 9000+i)))
		waiter := s.open(fmt.Sprintf("web-%d/%d/q%c1z", i%3+1, 3990+i, 'a'+i))
		got := make(chan *holdfast.Lease, 1)
		go func() {
			l, _ := waiter.Lock(ctx, "stock:sku-7781")
			got <- l
		}()
		pause(time.Duration(1000+i*i*370%2500) * time.Millisecond)
		s.unlock(lease)
		l := <-got
		if l == nil {
			s.t.Fatal("not acquired")
		}
		pause(time.Duration(800+i*i*530%1900) * time.Millisecond)
		s.unlock(l)
		pause(time.Duration(i%3) * time.Second)
	}
	for i := range 3 {
		_, err := hosts[i].RLock(ctx, "catalog")
		fail(err)
		_, err = hosts[i].Semaphore("gpu", 8).Acquire(ctx, i+1)
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
	s.wait("worker-3/81/t5vd", "leader:scheduler")
	pause(11 * time.Second)
}

// visitors takes locks until there are that many.
func (s *site) visitors(locks int) {
	s.t.Helper()
	n := 0
	for _, err := range s.client.List(s.t.Context(), "") {
		if err != nil {
			s.t.Fatal(err)
		}
		n++
	}
	for ; n < locks; n++ {
		s.lock(fmt.Sprintf("visitor:%05d", n), holdfast.TTL(10*time.Minute))
	}
}
