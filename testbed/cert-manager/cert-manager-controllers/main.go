// The controllers of cert-manager that sign with SelfSigned and CA issuers. Its own command has all
// issuers, with the clients of a dozen clouds, and is in no module that can be required.
package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/logs"
)

const workers = 2

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	logs.InitLogs()
	defer logs.FlushLogs()
	var options controller.ContextOptions
	options.Kubeconfig = os.Getenv("KUBECONFIG")
	// The defaults of its command.
	options.CertificateRequestMinimumBackoffDuration = time.Hour
	options.CertificateRequestMaximumBackoffDuration = 32 * time.Hour
	factory := must(controller.NewContextFactory(ctx, options))
	shared := must(factory.Build())
	var running sync.WaitGroup
	for name, construct := range controller.Known() {
		built := must(construct(factory))
		running.Go(func() {
			if err := built.Run(workers, ctx); err != nil {
				logs.Log.Error(err, "controller ended", "controller", name)
			}
		})
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	running.Wait()
}

func must[Value any](value Value, err error) Value {
	if err != nil {
		logs.Log.Error(err, "cert-manager cannot start")
		logs.FlushLogs()
		os.Exit(1)
	}
	return value
}
