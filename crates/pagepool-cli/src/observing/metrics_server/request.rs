//! What a client asks for: method, path, and the format that it prefers.

use pagepool::observe::MetricsFormat;

/// The format that is sent where a client likes both as much, or says nothing.
const USUAL: MetricsFormat = MetricsFormat::OpenMetrics;

/// The method and the path of a request; no method if it is none.
pub fn asked(head: &[u8]) -> (&str, &str) {
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = std::str::from_utf8(line).unwrap_or_default().split(' ');
    match (words.next(), words.next(), words.next()) {
        (Some(method), Some(target), Some(version)) if version.starts_with("HTTP/1.") => {
            (method, target.split('?').next().unwrap_or_default())
        }
        _ => ("", ""),
    }
}

/// The format that a client prefers, by its `Accept` (RFC 9110, section 12.5.1). Who takes neither gets what
/// every reader of text can show.
pub fn preferred(head: &[u8]) -> MetricsFormat {
    let head = String::from_utf8_lossy(head);
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let accept = fields.filter(|(name, _)| name.trim().eq_ignore_ascii_case("accept"));
    let ranges: Vec<_> = accept.flat_map(|(_, ranges)| ranges.split(',')).collect();
    let quality = |format| quality(&ranges, format);
    match (quality(MetricsFormat::OpenMetrics), quality(MetricsFormat::Prometheus)) {
        _ if ranges.is_empty() => USUAL,
        (open, plain) if open > 0.0 && open >= plain => MetricsFormat::OpenMetrics,
        _ => MetricsFormat::Prometheus,
    }
}

/// The type, the subtype and the version of a format.
fn media(format: MetricsFormat) -> [&'static str; 3] {
    match format {
        MetricsFormat::OpenMetrics => ["application", "openmetrics-text", "1.0.0"],
        _ => ["text", "plain", "0.0.4"],
    }
}

/// The `Content-Type` of a format.
pub fn content_type(format: MetricsFormat) -> String {
    let [of, sub, version] = media(format);
    format!("{of}/{sub}; version={version}; charset=utf-8")
}

/// How much a client likes a format, 0 to 1: what the range says that names it most exactly.
fn quality(ranges: &[&str], format: MetricsFormat) -> f64 {
    let [of, sub, version] = media(format);
    let (mut exact, mut quality) = (0, 0.0);
    for range in ranges {
        let mut parts = range.split(';').map(str::trim);
        let Some((range_of, range_sub)) = parts.next().and_then(|media| media.split_once('/')) else {
            continue;
        };
        let fits = match (range_of, range_sub) {
            ("*", "*") => 1,
            (range_of, "*") if range_of.eq_ignore_ascii_case(of) => 2,
            (range_of, range_sub)
                if range_of.eq_ignore_ascii_case(of) && range_sub.eq_ignore_ascii_case(sub) =>
            {
                3
            }
            _ => continue,
        };
        let params: Vec<_> = parts.filter_map(|param| param.split_once('=')).collect();
        let param = |name: &str| {
            let found = params.iter().find(|(of, _)| of.trim().eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.trim().trim_matches('"'))
        };
        if fits < exact || param("version").is_some_and(|asked| asked != version) {
            continue;
        }
        let says: f64 = param("q").map_or(1.0, |q| q.parse().unwrap_or(0.0));
        quality = if fits > exact { says } else { says.max(quality) };
        exact = fits;
    }
    quality
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_method_a_path_and_a_version() {
        assert_eq!(asked(b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n"), ("GET", "/metrics"));
        for none in [&b""[..], b"GET", b"GET /metrics", b"\xff \xff HTTP/1.1\r\n", b"GET / SMTP\r\n\r\n"] {
            assert_eq!(asked(none), ("", ""), "{none:?}");
        }
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
            (old, plain),
            (new, open),
        ] {
            let head = format!("GET /metrics HTTP/1.1\r\nHost: x\r\naCCEPT:{accept}\r\n\r\n");
            assert_eq!(preferred(head.as_bytes()), format, "{accept}");
        }
        assert_eq!(preferred(b"GET /metrics HTTP/1.1\r\n\r\n"), open);
        let two =
            b"GET / HTTP/1.1\r\nAccept: application/openmetrics-text;q=0.1\r\nAccept: text/plain\r\n\r\n";
        assert_eq!(preferred(two), plain, "two lines are one list");
        assert_eq!(content_type(plain), "text/plain; version=0.0.4; charset=utf-8");
    }
}
