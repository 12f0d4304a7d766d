//! The request of a client: method, path, and preferred format.

use httparse::{EMPTY_HEADER, Error, Header, Request};
use pagepool_watch::MetricsFormat;

/// The format for a client that prefers neither, or does not say.
const USUAL: MetricsFormat = MetricsFormat::OpenMetrics;
const MOST_FIELDS: usize = 100;

/// Method, path, and the format that the client prefers.
pub type RequestHead<'a> = (&'a str, &'a str, MetricsFormat);

/// Reads the head of a request (RFC 9112); `None` if it is incomplete. An error if it is not HTTP/1, or has too
/// many fields.
pub fn read_head(bytes: &[u8]) -> Result<Option<RequestHead<'_>>, Error> {
    let mut fields = [EMPTY_HEADER; MOST_FIELDS];
    let mut request = Request::new(&mut fields);
    if request.parse(bytes)?.is_partial() {
        return Ok(None);
    }
    let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
    Ok(Some((method, path_of(target), preferred(request.headers))))
}

/// The path of a target: `/metrics?x=1`, or `http://host/metrics` from a proxy.
fn path_of(target: &str) -> &str {
    let of_http = |scheme: &str| scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let path = match target.split_once("://") {
        Some((scheme, rest)) if of_http(scheme) => rest.find(['/', '?']).map_or("", |at| &rest[at..]),
        _ => target,
    };
    match path.split('?').next() {
        Some("") | None => "/",
        Some(path) => path,
    }
}

/// The format that a client prefers, by its `Accept` (RFC 9110, section 12.5.1). A client that accepts
/// neither gets plain text, which every reader can show.
fn preferred(fields: &[Header<'_>]) -> MetricsFormat {
    let accept = fields.iter().filter(|field| field.name.eq_ignore_ascii_case("accept"));
    let lists: Vec<_> = accept.map(|field| String::from_utf8_lossy(field.value)).collect();
    let ranges = lists.iter().flat_map(|list| list.split(',')).map(str::trim);
    let ranges: Vec<_> = ranges.filter(|range| !range.is_empty()).collect();
    let quality = |format| quality(&ranges, format);
    match (quality(MetricsFormat::OpenMetrics), quality(MetricsFormat::Prometheus)) {
        _ if ranges.is_empty() => USUAL,
        (open, plain) if open > 0.0 && open >= plain => MetricsFormat::OpenMetrics,
        _ => MetricsFormat::Prometheus,
    }
}

fn media(format: MetricsFormat) -> [&'static str; 3] {
    match format {
        MetricsFormat::OpenMetrics => ["application", "openmetrics-text", "1.0.0"],
        _ => ["text", "plain", "0.0.4"],
    }
}

pub fn content_type(format: MetricsFormat) -> String {
    let [of, sub, version] = media(format);
    format!("{of}/{sub}; version={version}; charset=utf-8")
}

/// How much a client likes a format, 0 to 1: by the range that names it most exactly.
fn quality(ranges: &[&str], format: MetricsFormat) -> f64 {
    let (mut exact, mut quality) = (0, 0.0);
    for range in ranges {
        let mut parts = range.split(';').map(str::trim);
        let Some(fits) = parts.next().and_then(|range| fit(range, format)) else { continue };
        let params: Vec<_> = parts.filter_map(|param| param.split_once('=')).collect();
        let param = |name: &str| {
            let found = params.iter().find(|(of, _)| of.trim().eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.trim().trim_matches('"'))
        };
        if fits < exact || param("version").is_some_and(|asked| asked != media(format)[2]) {
            continue;
        }
        let weight = |q: &str| q.parse::<f64>().ok().filter(|q| (0.0..=1.0).contains(q));
        let says = param("q").map_or(1.0, |q| weight(q).unwrap_or(0.0));
        quality = if fits > exact { says } else { says.max(quality) };
        exact = fits;
    }
    quality
}

/// How exactly a range names a format, if it does: 1 to 3.
fn fit(range: &str, format: MetricsFormat) -> Option<u8> {
    let [of, sub, _] = media(format);
    match range.split_once('/')? {
        ("*", "*") => Some(1),
        (range_of, _) if !range_of.eq_ignore_ascii_case(of) => None,
        (_, "*") => Some(2),
        (_, range_sub) => range_sub.eq_ignore_ascii_case(sub).then_some(3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Method and path of a complete request.
    fn asked(head: &str) -> Option<(&str, &str)> {
        read_head(head.as_bytes()).ok()?.map(|(method, path, _)| (method, path))
    }

    #[test]
    fn a_request_has_a_method_a_path_and_a_version() {
        for target in ["/metrics", "/metrics?x=http://y/", "http://x:1/metrics", "HTTPS://x/metrics?y"] {
            for end in ["\r\n", "\n"] {
                for before in ["", end] {
                    for version in ["1.0", "1.1"] {
                        let head = format!("{before}GET {target} HTTP/{version}{end}Host: x{end}{end}");
                        assert_eq!(asked(&head), Some(("GET", "/metrics")), "{head:?}");
                        let part = read_head(&head.as_bytes()[..head.len() - end.len()]);
                        assert_eq!(part, Ok(None), "{head:?}");
                    }
                }
            }
        }
        for target in ["http://x", "http://x?y", "/", "/?y"] {
            assert_eq!(asked(&format!("GET {target} HTTP/1.1\n\n")), Some(("GET", "/")), "{target}");
        }
        assert_eq!(asked("GET ftp://x/metrics HTTP/1.1\n\n"), Some(("GET", "ftp://x/metrics")));
        assert_eq!(asked("OPTIONS * HTTP/1.1\n\n"), Some(("OPTIONS", "*")));
    }

    #[test]
    fn malformed_requests_and_too_many_fields_are_refused() {
        for bad in [
            &b"GET /metrics\r\n"[..],
            b"GET /metrics HTTP/1.x\r\n\r\n",
            b"GET /metrics HTTP/1.10\r\n\r\n",
            b"GET /metrics HTTP/2.0\r\n\r\n",
            b"GET / SMTP\r\n\r\n",
            b"\xff \xff HTTP/1.1\r\n",
            b"\x16\x03\x01\x02",
            b"GET /metrics HTTP/1.1\r\nno field\r\n\r\n",
            b"GET /metrics HTTP/1.1\r\nA : b\r\n\r\n",
        ] {
            assert!(read_head(bad).is_err_and(|error| error != Error::TooManyHeaders), "{bad:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MOST_FIELDS + 1));
        assert_eq!(read_head(many.as_bytes()), Err(Error::TooManyHeaders));
    }

    #[test]
    fn a_client_gets_the_format_that_it_prefers() {
        let (open, plain) = (MetricsFormat::OpenMetrics, MetricsFormat::Prometheus);
        let old =
            "application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let new = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                   application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;q=0.3,\
                   text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (accept, format) in [
            ("text/plain", plain),
            ("Text/Plain; Version=0.0.4", plain),
            ("text/*", plain),
            ("application/openmetrics-text", open),
            ("*/*", open),
            ("text/html, */*;q=0.8", open),
            ("text/plain;q=0.5, */*;q=0.4", plain),
            ("text/plain;q=0.5, application/openmetrics-text;q=0.5", open),
            ("application/openmetrics-text;q=0, */*", plain),
            ("application/json", plain),
            ("text/plain;q=0", plain),
            ("text/plain;version=9", plain),
            (";;,/,text/plain;q=x, application/*", open),
            ("text/plain;q=inf, application/openmetrics-text;q=0.1", open),
            ("text/plain;q=nan, application/openmetrics-text;q=nan", plain),
            ("", open),
            (" , ,", open),
            (old, plain),
            (new, open),
        ] {
            let head = format!("GET /metrics HTTP/1.1\r\nHost: x\r\naCCEPT:{accept}\r\n\r\n");
            assert_eq!(read_head(head.as_bytes()), Ok(Some(("GET", "/metrics", format))), "{accept}");
        }
        assert_eq!(read_head(b"GET / HTTP/1.1\r\n\r\n"), Ok(Some(("GET", "/", open))));
        let two =
            b"GET / HTTP/1.1\r\nAccept: application/openmetrics-text;q=0.1\r\nAccept: text/plain\r\n\r\n";
        assert_eq!(read_head(two), Ok(Some(("GET", "/", plain))), "two lines are one list");
        assert_eq!(content_type(plain), "text/plain; version=0.0.4; charset=utf-8");
    }
}
