// Package gocronholdfast makes the schedulers of github.com/go-co-op/gocron on several hosts run
// each job on one of them. A [Locker] lets the first host run a tick of a job. An [Elector] lets
// one host, the leader, run all jobs.
//
//	locker, err := gocronholdfast.NewLocker(c, 10*time.Second)
//	...
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//	...
//	s.NewJob(gocron.CronJob("*/5 * * * *", false), gocron.NewTask(func(ctx context.Context) error {
//		return report(locker.Context(ctx, "report"))
//	}), gocron.WithName("report"))
//
// The lock has the name of the job. Give every job a name of its own with gocron.WithName: the default
// is the name of its function, which two jobs can share and the next version of the program can change.
// To keep these names apart from those of other locks, make the client with holdfast.WithPrefix.
//
// Neither runs each tick exactly once. If a host dies while it runs a job, no other host repeats the
// tick, and ticks are skipped until the TTL of the lock ends. Package cronholdfast, for
// github.com/robfig/cron, can repeat such a tick.
package gocronholdfast
