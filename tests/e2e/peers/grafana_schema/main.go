// Checks dashboards with the types that Grafana publishes for version 1 of its dashboards: prints
// each unknown or missing field, and each value of a wrong type.
package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

type panel struct {
	Type        string         `json:"type"`
	Title       string         `json:"title"`
	FieldConfig map[string]any `json:"fieldConfig"`
}

// Some of the types return a list of errors even if it is empty.
func failed(err error) bool {
	return err != nil && err.Error() != ""
}

// The types read the field configuration of a panel loosely. It is read strictly here, with the
// part that belongs to the kind of panel, also in overrides.
func fieldErrors(each panel) []error {
	var errs []error
	config, known := cog.ConfigForPanelcfgVariant(each.Type)
	custom := func(value any) {
		raw, _ := json.Marshal(value)
		if known && config.StrictFieldConfigUnmarshaler != nil {
			if _, err := config.StrictFieldConfigUnmarshaler(raw); failed(err) {
				errs = append(errs, err)
			}
		}
	}
	defaults, _ := each.FieldConfig["defaults"].(map[string]any)
	ofKind := defaults["custom"]
	custom(ofKind)
	delete(defaults, "custom")
	overrides, _ := each.FieldConfig["overrides"].([]any)
	// The types describe links of values like links of dashboards. Grafana saves only their titles,
	// addresses and targets.
	delete(defaults, "links")
	for _, override := range overrides {
		properties, _ := override.(map[string]any)["properties"].([]any)
		own := map[string]any{}
		if shared, is := ofKind.(map[string]any); is {
			maps.Copy(own, shared)
		}
		for _, property := range properties {
			pair, _ := property.(map[string]any)
			id, _ := pair["id"].(string)
			if name, is := strings.CutPrefix(id, "custom."); is {
				own[name] = pair["value"]
			} else if id != "links" {
				// Properties of all kinds of panels have the names of the defaults.
				defaults[id] = pair["value"]
				raw, _ := json.Marshal(each.FieldConfig)
				var source dashboard.FieldConfigSource
				if err := source.UnmarshalJSONStrict(raw); failed(err) {
					errs = append(errs, err)
				}
			}
		}
		custom(own)
	}
	raw, _ := json.Marshal(each.FieldConfig)
	var source dashboard.FieldConfigSource
	if err := source.UnmarshalJSONStrict(raw); failed(err) {
		errs = append(errs, err)
	}
	return errs
}

func check(raw []byte) []error {
	var errs []error
	var made dashboard.Dashboard
	if err := made.UnmarshalJSONStrict(raw); failed(err) {
		errs = append(errs, err)
	}
	if err := made.Validate(); failed(err) {
		errs = append(errs, err)
	}
	var found struct {
		Panels []panel `json:"panels"`
	}
	if err := json.Unmarshal(raw, &found); err != nil {
		return append(errs, err)
	}
	for _, each := range found.Panels {
		if each.Type == "row" {
			continue
		}
		for _, err := range fieldErrors(each) {
			errs = append(errs, fmt.Errorf("%s: %w", each.Title, err))
		}
	}
	return errs
}

func main() {
	plugins.RegisterDefaultPlugins()
	status := 0
	for _, path := range os.Args[1:] {
		raw, err := os.ReadFile(path)
		if err != nil {
			fmt.Println(err)
			os.Exit(2)
		}
		for _, err := range check(raw) {
			fmt.Printf("%s: %v\n", path, err)
			status = 1
		}
	}
	os.Exit(status)
}
