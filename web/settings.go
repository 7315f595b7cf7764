package web

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"holdfast/app/shop"
	"holdfast/templates"
)

// setting is one value of the settings form: how it is shown, and where it lives.
type setting struct {
	field templates.Field
	value any // *int, *string, *bool or *[]int64
}

type settingGroup struct {
	heading  string
	settings []setting
}

// skipBuyers is the setting that needs Shopify to show who buys.
const skipBuyers = "skip_buyers"

// settingsOf is the whole form, over one set of values. The names are those of shop.Settings in JSON.
func settingsOf(set *shop.Settings) []settingGroup {
	number := func(name, label, unit, help string, v *int) setting {
		return setting{templates.Field{Name: name, Label: label, Unit: unit, Help: help, Kind: "number"}, v}
	}
	return []settingGroup{
		{"Holding", []setting{
			number("hold_minutes", "A unit is held for", "minutes", "How long a shopper who pressed has to check out. Then it goes to the next in line. 5 to 120.", &set.HoldMinutes),
			{templates.Field{Name: "reserve_before_telling", Label: "Reserve before telling", Kind: "checkbox",
				Help: "Nobody is told about a unit that is not already held for them, so nobody finds it gone. With more than one person told per unit this is off: then whoever presses first has the unit."}, &set.ReserveBeforeTelling},
			{templates.Field{Name: "automatic_discounts", Label: "Automatic discounts apply", Kind: "checkbox",
				Help: "A held unit costs what it would in the shop. Without this, the shop's automatic discounts are left out of its checkout."}, &set.AutomaticDiscounts},
			{templates.Field{Name: "discount_codes", Label: "Discount codes are taken", Kind: "checkbox",
				Help: "Whoever checks out a held unit can enter a discount code."}, &set.DiscountCodes},
		}},
		{"Telling", []setting{
			number("offer_minutes_email", "An emailed offer stands for", "minutes", "How long the first in line have to press, once the email is sent. 15 to 2,880.", &set.OfferMinutesEmail),
			number("offer_minutes_sms", "A texted offer stands for", "minutes", "The same for texts, which are read sooner. 15 to 2,880.", &set.OfferMinutesSMS),
			number("notices_per_unit", "People told per unit", "people", "With 1, there is a unit for everybody who is told. With more, some will find that it is gone; they keep their place. 1 to 100.", &set.NoticesPerUnit),
			{templates.Field{Name: "reply_to", Label: "Replies to emails go to", Kind: "email", Help: "One mail address, such as your help desk. Leave it empty to receive none."}, &set.ReplyTo},
		}},
		{"Texts", []setting{
			{templates.Field{Name: "quiet_hours", Label: "Quiet hours", Kind: "checkbox",
				Help: "Texts go at decent hours where their recipient is, and at most 3 within 24 hours to one number, 10 minutes apart. Nobody's time runs out meanwhile. On Sundays, numbers in North America get none before noon."}, &set.QuietHours},
			number("text_from", "Texts go from", "o'clock", "In the recipient's own time. 9 to 19.", &set.TextFrom),
			number("text_until", "Texts go until", "o'clock", "None is sent from this hour on. 10 to 20.", &set.TextUntil),
			{templates.Field{Name: "pass_asleep", Label: "Tell the next who is awake", Kind: "checkbox",
				Help: "Whoever may not be texted now keeps their place, and the unit goes to the next in line who may be told. Without this, the unit waits for them."}, &set.PassAsleep},
			number("text_price", "One text costs", "thousandths", "Of your currency: 10 is one hundredth. It is what your plan at Twilio says, and what forecasts and budgets count with. A long message is paid as several texts.", &set.TextPrice),
			number("text_budget_restock", "Texts of one restock may cost", "at most", "In your currency. Past it texts wait until you let them go on; 0 is no limit.", &set.TextBudgetRestock),
			number("text_budget_month", "Texts of one month may cost", "at most", "The same for a month, by UTC. 0 is no limit.", &set.TextBudgetMonth),
		}},
		{"Restocks", []setting{
			number("threshold", "A restock begins at", "units", "Fewer units than this are left to whoever finds them in the shop.", &set.Threshold),
			number("settle_seconds", "New stock is watched for", "seconds", "Before anybody is told, so that a number that is corrected at once sends no message. 0 to 3,600.", &set.SettleSeconds),
			number("implausible_units", "Ask me about a rise of more than", "units", "A rise this big may be a slip of the keyboard. It waits for your yes.", &set.ImplausibleUnits),
			{templates.Field{Name: "locations", Label: "Locations whose stock counts", Kind: "text", Help: "Shopify's ids of locations, separated by commas. Leave it empty for all that sell online."}, &set.Locations},
		}},
		{"Waiting", []setting{
			number("ttl_days", "A place is kept for", "days", "Whoever waits longer than this is taken off the list, and asked for nothing. Joining again renews it. 1 to 730.", &set.TTLDays),
			{templates.Field{Name: skipBuyers, Label: "Leave out whoever has bought it", Kind: "checkbox",
				Help: "Somebody who buys an item in the shop the ordinary way is taken off its waitlist, and not told later that it is back. They are recognised by email address, phone number or customer account."}, &set.SkipBuyers},
		}},
	}
}

// text is the value as the form shows it.
func (t setting) text() string {
	switch v := t.value.(type) {
	case *int:
		return strconv.Itoa(*v)
	case *string:
		return *v
	case *bool:
		return strconv.FormatBool(*v)
	case *[]int64:
		ids := make([]string, len(*v))
		for i, id := range *v {
			ids[i] = strconv.FormatInt(id, 10)
		}
		return strings.Join(ids, ", ")
	}
	panic("a setting of no known type: " + t.field.Name)
}

// parse takes what was typed, or says what is wrong with it.
func (t setting) parse(typed []string) (faultReason string) {
	one := strings.TrimSpace(typed[len(typed)-1]) // a ticked box overrules the hidden value before it
	switch v := t.value.(type) {
	case *int:
		n, err := strconv.Atoi(one)
		if err != nil {
			return "give a whole number, in digits alone"
		}
		*v = n
	case *string:
		*v = one
	case *bool:
		switch one {
		case "true", "on", "1":
			*v = true
		case "false", "off", "0", "":
			*v = false
		default:
			return "tick the box or leave it"
		}
	case *[]int64:
		ids := []int64{}
		for _, part := range strings.FieldsFunc(strings.Join(typed, ","), func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
			id, err := strconv.ParseInt(strings.TrimPrefix(part, "gid://shopify/Location/"), 10, 64)
			if err != nil {
				return "give the ids of locations, whole numbers separated by commas"
			}
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		*v = ids
	}
	return ""
}

func (s *server) settings(w http.ResponseWriter, r *http.Request, v visit) error {
	set, err := s.Shops.Settings(r.Context(), v.Shop.ID)
	if err != nil {
		return err
	}
	return s.settingsPage(w, r, v, http.StatusOK, &set, nil, nil)
}

// settingsPage shows the form; typed overrides the values, faults stand beside their fields.
func (s *server) settingsPage(w http.ResponseWriter, r *http.Request, v visit, status int, set *shop.Settings, typed url.Values, faults map[string]string) error {
	var groups []templates.FieldGroup
	seen := map[string]bool{}
	for _, g := range settingsOf(set) {
		group := templates.FieldGroup{Heading: g.heading}
		for _, t := range g.settings {
			f := t.field
			f.Value = t.text()
			if f.Name == skipBuyers && v.Shop.CustomersHidden {
				f.Help += " At present this does nothing: Shopify does not show Holdfast who your customers are, since the app is not approved for protected customer data."
			}
			if typed.Has(f.Name) && f.Kind != "checkbox" {
				f.Value = strings.Join(typed[f.Name], ", ")
			}
			f.Fault = sentence(faults[f.Name])
			seen[f.Name] = true
			group.Fields = append(group.Fields, f)
		}
		groups = append(groups, group)
	}
	var others []string
	for name, reason := range faults {
		if !seen[name] {
			others = append(others, name+": "+reason)
		}
	}
	slices.Sort(others)
	unknown, err := s.Domain.UnknownTopics(r.Context(), v.Shop.ID)
	if err != nil {
		return err
	}
	return s.render(w, r, status, templates.SettingsPage(v.Admin, groups, len(faults), others, unknown))
}

// saveSettings changes what the form carries and leaves the rest as it is. Either everything is saved
// or, when anything is at fault, nothing, with every fault shown beside what was typed.
func (s *server) saveSettings(w http.ResponseWriter, r *http.Request, v visit) error {
	form, err := readForm(r)
	if err != nil {
		return err
	}
	for name := range form {
		for _, value := range form[name] {
			if err := checkText(map[string]string{"a setting": name + value}); err != nil {
				return err
			}
		}
	}
	set, err := s.Shops.Settings(r.Context(), v.Shop.ID)
	if err != nil {
		return err
	}
	faults, known := map[string]string{}, map[string]bool{}
	for _, g := range settingsOf(&set) {
		for _, t := range g.settings {
			known[t.field.Name] = true
			if form.Has(t.field.Name) {
				if reason := t.parse(form[t.field.Name]); reason != "" {
					faults[t.field.Name] = reason
				}
			}
		}
	}
	for name := range form {
		if !known[name] { // to save the others would look as if this one had been saved, too
			faults[name] = "there is no such setting"
		}
	}
	for _, f := range set.Check() {
		if faults[f.Field] == "" {
			faults[f.Field] = f.Reason
		}
	}
	if len(faults) == 0 {
		err = s.Domain.ChangeSettings(r.Context(), v.Shop.ID, set)
		var f shop.Fault
		if !errors.As(err, &f) {
			if err != nil {
				return err
			}
			return then(w, r, "/settings", "saved")
		}
		faults[f.Field] = f.Reason
	}
	return s.settingsPage(w, r, v, http.StatusUnprocessableEntity, &set, form, faults)
}

// sentence begins a reason with a capital letter and leaves its full stop to the page.
func sentence(reason string) string {
	first, size := utf8.DecodeRuneInString(reason)
	if size == 0 {
		return ""
	}
	return string(unicode.ToUpper(first)) + strings.TrimSuffix(reason[size:], ".")
}
