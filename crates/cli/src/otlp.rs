//! The addresses of collectors of OpenTelemetry.

use sandcove_wire::secret::Secret;

/// The URL that a signal of OpenTelemetry, such as traces, is sent to: from the flag, from the standard variables, or from the file. The
/// variable for the signal alone has the whole URL; the others have its base. A signal whose exporter is `none` is not sent.
pub(crate) fn endpoint(
    signal: &str,
    flag: Option<&str>,
    file: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<Secret> {
    let upper = signal.to_uppercase();
    let given = |name: &str| variable(name).filter(|value| !value.is_empty());
    let whole = |base: &str| format!("{}/v1/{signal}", base.trim_end_matches('/'));
    if given(&format!("OTEL_{upper}_EXPORTER")).is_some_and(|name| name == "none") {
        return None;
    }
    flag.map(whole)
        .or_else(|| given(&format!("OTEL_EXPORTER_OTLP_{upper}_ENDPOINT")))
        .or_else(|| given("OTEL_EXPORTER_OTLP_ENDPOINT").as_deref().map(whole))
        .or_else(|| file.map(whole))
        .map(Secret::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_go_where_the_flag_the_variables_or_the_file_say() {
        let found = |signal: &str, flag: Option<&str>, variables: &[(&str, &str)], file: Option<&str>| {
            let variable = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            endpoint(signal, flag, file, variable).map(|url| url.expose().to_owned())
        };
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t/here");
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://b:4318/");
        let no_logs = ("OTEL_LOGS_EXPORTER", "none");
        for (signal, flag, variables, file, expected) in [
            ("traces", Some("http://f"), &[traces, base][..], None, Some("http://f/v1/traces")),
            ("traces", None, &[traces, base], Some("http://c"), Some("http://t/here")),
            ("traces", None, &[base], Some("http://c"), Some("http://b:4318/v1/traces")),
            ("traces", None, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")], None, None),
            ("traces", None, &[], Some("http://c"), Some("http://c/v1/traces")),
            ("logs", None, &[traces], None, None),
            ("logs", None, &[traces, base], None, Some("http://b:4318/v1/logs")),
            ("logs", Some("http://f"), &[no_logs], None, None),
            ("metrics", Some("http://f"), &[no_logs], None, Some("http://f/v1/metrics")),
        ] {
            let found = found(signal, flag, variables, file);
            assert_eq!(found.as_deref(), expected, "{signal} {flag:?} {variables:?} {file:?}");
        }
    }
}
