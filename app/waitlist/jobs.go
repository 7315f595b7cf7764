package waitlist

import "github.com/riverqueue/river"

// The jobs that the domain queues with its changes, in the same transaction. Each carries ids alone: a
// worker reads the rest, as it is when it runs. All may run twice, and twice at once.

// ObserveJob asks for Observe.
type ObserveJob struct {
	ShopID    int64 `json:"shop_id"`
	VariantID int64 `json:"variant_id"`
}

// SecureJob asks for SecureNext. Several are queued for many holds: each is a worker on the shop's line.
type SecureJob struct {
	ShopID int64 `json:"shop_id"`
}

// ReleaseJob asks for Release.
type ReleaseJob struct {
	ShopID int64 `json:"shop_id"`
	HoldID int64 `json:"hold_id"`
}

// NoticeJob asks for Notify.
type NoticeJob struct {
	ShopID    int64 `json:"shop_id"`
	RestockID int64 `json:"restock_id"`
}

// WebhookJob asks for HandleWebhook.
type WebhookJob struct {
	ShopID    int64 `json:"shop_id"`
	WebhookID int64 `json:"webhook_id"`
}

// ReconcileJob asks for Reconcile.
type ReconcileJob struct {
	ShopID int64 `json:"shop_id"`
}

// CatalogueJob asks for ReadCatalogue.
type CatalogueJob struct {
	ShopID int64 `json:"shop_id"`
}

// ProductJob asks for ReadProduct.
type ProductJob struct {
	ShopID    int64 `json:"shop_id"`
	ProductID int64 `json:"product_id"`
}

// The queues that the jobs wait in, each with workers of its own: a flood of webhooks does not keep a press
// waiting for its draft, and reads of stock gather.
const (
	QueueObserve = "observe"
	QueueHolds   = "holds"
	// QueueCatalogue has few workers: what waits in it is long and can wait.
	QueueCatalogue = "catalogue"
)

func (ObserveJob) InsertOpts() river.InsertOpts { return river.InsertOpts{Queue: QueueObserve} }
func (SecureJob) InsertOpts() river.InsertOpts  { return river.InsertOpts{Queue: QueueHolds} }
func (ReleaseJob) InsertOpts() river.InsertOpts { return river.InsertOpts{Queue: QueueHolds} }

func (CatalogueJob) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: QueueCatalogue}
}
func (ProductJob) InsertOpts() river.InsertOpts { return river.InsertOpts{Queue: QueueCatalogue} }

func (ObserveJob) Kind() string   { return "observe" }
func (SecureJob) Kind() string    { return "secure" }
func (ReleaseJob) Kind() string   { return "release" }
func (NoticeJob) Kind() string    { return "notice" }
func (WebhookJob) Kind() string   { return "webhook" }
func (ReconcileJob) Kind() string { return "reconcile" }
func (CatalogueJob) Kind() string { return "catalogue" }
func (ProductJob) Kind() string   { return "product" }
