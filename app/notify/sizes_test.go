//go:build !proof

package notify

// thousand is how many people wait beside the one who cannot be told. The proof has them all.
const thousand = 200

// rates are kinds of event, how many mails were sent, and how many such events pause their shop; 0: none do.
var rates = []rate{{"bounce", 40, 3}, {"complaint", 40, 1}, {"bounce", 19, 0}}
