package waitlist

// Address is a contact as it was understood.
type Address struct {
	Channel Channel
	Key     string // what makes it unique: lower-case mail address, or E.164
	Send    string // what is sent to
	Shown   string // for the person who typed it
}

// ParseAddress understands a contact that somebody typed, or says what is wrong with it (*Invalid with
// code invalid_email, invalid_phone or invalid_channel). country is the region of a phone number
// without a country code (ISO 3166, upper case).
func ParseAddress(channel Channel, typed, country string) (Address, error) { panic("soon") }

// Mask shows as much of an address as its owner needs to recognise it.
func Mask(channel Channel, address string) string { panic("soon") }
