module github.com/holdfast-lock/holdfast/cronholdfast

go 1.25.0

require (
	github.com/holdfast-lock/holdfast v0.0.0
	github.com/robfig/cron/v3 v3.0.1
)

replace github.com/holdfast-lock/holdfast => ../
