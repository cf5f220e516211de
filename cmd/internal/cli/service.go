package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"marbles/packaging"
)

func newService(a *app) *cobra.Command {
	parent := parentCommand("service", "The service itself under systemd or launchd", "install, uninstall, status, print")
	names := packaging.Names()
	var binary, config string
	print := &cobra.Command{
		Use:   "print " + strings.Join(names, "|"),
		Short: "Print a unit: the hardened system unit, the user unit, or the launchd plist",
		Example: `  marbles service print system | sudo tee /etc/systemd/system/marbles.service
  marbles service print user --binary "$(command -v marbles)" > ~/.config/systemd/user/marbles.service`,
		ValidArgs: names,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("service print takes one of: %s", strings.Join(names, ", "))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := packaging.Render(args[0], packaging.Values{Binary: binary, Config: config, Home: a.Home})
			if err != nil {
				return &codedError{code: exitUsage, err: err}
			}
			_, err = a.Stdout.Write(text)
			return err
		},
	}
	print.Flags().StringVar(&binary, "binary", "", "`path` of the marbles binary in the unit (default: as packaged)")
	print.Flags().StringVar(&config, "settings", "", "`path` of the settings file in the unit (default: as packaged)")
	parent.AddCommand(newServiceInstall(a)...)
	parent.AddCommand(print)
	return parent
}
