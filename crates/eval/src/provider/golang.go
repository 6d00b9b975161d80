// Calls the function of a provider: reads the arguments from one file and writes the answer to another, so that nothing the
// provider prints can be taken for it.
package main

import (
	"encoding/json"
	"os"
)

func sandcoveAnswer() (interface{}, error) {
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		return nil, err
	}
	var call struct {
		Prompt  string                 `json:"prompt"`
		Options map[string]interface{} `json:"options"`
		Context map[string]interface{} `json:"context"`
	}
	if err := json.Unmarshal(text, &call); err != nil {
		return nil, err
	}
	return CallApi(call.Prompt, call.Options, call.Context)
}

func main() {
	answer, err := sandcoveAnswer()
	if err != nil {
		answer = map[string]interface{}{"error": err.Error()}
	}
	text, err := json.Marshal(answer)
	if err == nil {
		err = os.WriteFile(os.Args[2], text, 0o600)
	}
	if err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
}
