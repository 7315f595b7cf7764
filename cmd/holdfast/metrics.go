package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"holdfast/app/shopify"
	"holdfast/web"
)

// metrics is what this process counts, for GET /metrics of the operator's listener. No label grows with the
// number of shops, and none is what somebody has sent us.
type metrics struct {
	registry *prometheus.Registry
	points   *prometheus.HistogramVec
	seconds  *prometheus.HistogramVec
	webhooks *prometheus.CounterVec
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		points: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_shopify_call_points", Help: "Points of a shop's rate limit that a call to Shopify has cost, by its root field and what became of it.",
			Buckets: []float64{0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000},
		}, []string{"op", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_shopify_call_seconds", Help: "Time that a call to Shopify has taken, by its root field and what became of it; throttled and away ones were mostly not made.",
			Buckets: []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
		}, []string{"op", "outcome"}),
		webhooks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_webhooks_total", Help: "Webhooks that have come, by topic (\"other\" for one that the app does not know) and what was done with them.",
		}, []string{"topic", "outcome"}),
	}
	m.registry.MustRegister(m.points, m.seconds, m.webhooks, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// called counts a call to Shopify.
func (m *metrics) called(c shopify.Call) {
	m.points.WithLabelValues(c.Op, c.Outcome()).Observe(c.Points)
	m.seconds.WithLabelValues(c.Op, c.Outcome()).Observe(c.Took.Seconds())
}

// webhook counts a webhook.
func (m *metrics) webhook(topic string, outcome web.WebhookOutcome) {
	m.webhooks.WithLabelValues(topic, string(outcome)).Inc()
}

// watch shows how the shops' budgets are when somebody looks.
func (m *metrics) watch(budgets func() shopify.Budgets) {
	for name, of := range map[string]struct {
		help  string
		value func(shopify.Budgets) int
	}{
		"holdfast_shopify_shops":            {"Shops that this process has called.", func(b shopify.Budgets) int { return b.Shops }},
		"holdfast_shopify_shops_low_points": {"Shops with less than a fifth of their points left.", func(b shopify.Budgets) int { return b.Low }},
		"holdfast_shopify_shops_away":       {"Shops that are not called, since Shopify does not answer for them.", func(b shopify.Budgets) int { return b.Away }},
	} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: of.help},
			func() float64 { return float64(of.value(budgets())) }))
	}
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}
