package monitor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// pingTime bounds one ping, redirects included.
const pingTime = 10 * time.Second

// Ping asks a URL once, for the sake of asking, and says what came of it. Neither that nor an error shows more of the URL
// than its host: the rest is often a secret.
func Ping(ctx context.Context, address, userAgent string) (said string, err error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", errors.New("cannot ping: want an http or https URL")
	}
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	fail := func(err error) (string, error) {
		var from *url.Error
		for errors.As(err, &from) { // it shows the URL
			err = from.Err
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer within %s", pingTime)
		}
		return "", fmt.Errorf("cannot ping %s: %w", u.Host, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fail(errors.New("it is no URL that can be asked"))
	}
	if userAgent != "" {
		req.Header.Set("User-Agent", userAgent)
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}
	client := &http.Client{Transport: transport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if len(via) >= 3 || next.URL.Host != u.Host {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	resp, err := client.Do(req)
	if err != nil {
		return fail(err)
	}
	defer resp.Body.Close()
	const enough = 64 << 10
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, enough))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fail(fmt.Errorf("HTTP %d", resp.StatusCode))
	}
	return fmt.Sprintf("%s answered %d", u.Host, resp.StatusCode), nil
}
