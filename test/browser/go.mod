// Not released: it holds tests of Holdfast, and nobody imports it.
module github.com/holdfast-lock/holdfast/test/browser

go 1.26.0

require (
	github.com/chromedp/cdproto v0.158.6
	github.com/chromedp/chromedp v0.21.0
	github.com/holdfast-lock/holdfast v0.0.0
)

require github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect

replace github.com/holdfast-lock/holdfast => ../../
