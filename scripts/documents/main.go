// Documents compares what a run of all tests has sent to the simulated Shopify with the documents that the
// app has: one that is not among them, or one of them that was never sent, is a fault.
//
//	go run ./scripts/documents DIR
//
// DIR is what HOLDFAST_TEST_DOCUMENTS named while the tests ran.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"holdfast/app/shopify"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: documents DIR")
		os.Exit(2)
	}
	documents, err := shopify.Documents()
	var faults []string
	if err == nil {
		faults, err = compare(os.Args[1], documents)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	for _, f := range faults {
		fmt.Println(f)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
	fmt.Printf("%d documents, all of them sent, and nothing else\n", len(documents))
}

// compare returns what is wrong, in order, with the documents in the files of dir: documents are those that
// the app has, by their names.
func compare(dir string, documents map[string]string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.graphql"))
	if err != nil {
		return nil, err
	}
	sent := map[string]bool{}
	var faults []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		sent[string(text)] = true
	}
	known := map[string]bool{}
	for name, text := range documents {
		if known[text] = true; !sent[text] {
			faults = append(faults, "never sent by any test: "+name)
		}
	}
	for text := range sent {
		if !known[text] {
			faults = append(faults, "sent, and not one of the embedded documents:\n"+text)
		}
	}
	slices.Sort(faults)
	return faults, nil
}
