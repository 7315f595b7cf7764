//go:build proof

package notify

const thousand = 1000

var rates = []rate{{"bounce", 40, 3}, {"bounce", 400, 21}, {"complaint", 40, 1}, {"complaint", 400, 2}, {"bounce", 19, 0}}
