//! Settings of a server: flags, then `SANDCOVE_*` variables, then `sandcove.toml`, then defaults.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use rustls::pki_types::DnsName;
use sandcove_server::WarmMemory;
use sandcove_server::otlp::Endpoints;
use sandcove_wire::secret::Secret;

mod choices;
mod file;

pub use self::choices::{InterpreterToken, LanguageChoice};
use self::choices::{ParkAfter, park_after};
#[cfg(test)]
pub use self::file::keys_of_file;
use crate::address::address;
use crate::log_filter::LogFormat;
use crate::otlp;
use crate::registries::{BuildChoices, BuildFile, BuildLimitArgs};
use crate::tls::{TlsArgs, TlsFile, TlsSettings};

/// The data directory unless another one is set.
pub const DEFAULT_DATA_DIR: &str = "/var/lib/sandcove";

/// The number of the server's account unless another one is set. Distributions give numbers below 60000 to people and services, and
/// those from 61184 up to services without an account of their own; it needs no entry in `/etc/passwd`.
const DEFAULT_SERVER_ACCOUNT: u32 = 60_888;
/// Account of the egress process when none is set.
const DEFAULT_EGRESS_ACCOUNT: u32 = 60_889;

/// The configuration file unless another one is named.
const DEFAULT_CONFIG: &str = "/etc/sandcove/sandcove.toml";

/// The heading of options that many commands have, which help shows after those of the command itself.
pub const GLOBAL: &str = "Global options";

/// Options of every command: where a server keeps its data and its settings.
#[derive(Debug, Clone, Args)]
pub struct DataDir {
    /// directory for templates, sandboxes and the database [default: /var/lib/sandcove]
    #[arg(long, env = "SANDCOVE_DATA_DIR", global = true, help_heading = GLOBAL, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// configuration file [default: /etc/sandcove/sandcove.toml, if it exists]
    #[arg(long, env = "SANDCOVE_CONFIG", global = true, help_heading = GLOBAL, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl DataDir {
    /// The configuration file that is used; `None` if there is none.
    pub fn config_file(&self) -> Option<PathBuf> {
        self.config.clone().or_else(|| Some(DEFAULT_CONFIG.into()).filter(|path: &PathBuf| path.exists()))
    }
}

/// Options of a server.
#[derive(Debug, Clone, Default, Args)]
pub struct ServerArgs {
    /// address to listen on [default: 127.0.0.1:3000]
    #[arg(long, env = "SANDCOVE_LISTEN", value_name = "HOST:PORT", value_parser = address)]
    listen: Option<SocketAddr>,
    /// domain of sandbox host names, `<port>-<sandbox>.<domain>`, with a port where clients do not use that of the scheme [default: localhost:<port>; with --tls local
    /// sbx.localhost:<port>]
    #[arg(long, env = "SANDCOVE_DOMAIN")]
    domain: Option<String>,
    #[command(flatten)]
    tls: TlsArgs,
    /// network of 65,536 addresses for sandboxes [default: 10.213.0.0/16]
    #[arg(long, env = "SANDCOVE_NETWORK", value_name = "CIDR")]
    network: Option<String>,
    /// name servers for sandboxes, separated by commas [default: the host's]
    #[arg(long, env = "SANDCOVE_DNS", value_delimiter = ',', value_name = "ADDRESS")]
    dns: Option<Vec<IpAddr>>,
    /// maximum number of sandboxes at once [default: 1000]
    #[arg(long, env = "SANDCOVE_MAX_SANDBOXES", value_name = "N")]
    max_sandboxes: Option<u32>,
    /// memory that paused sandboxes may hold, percent of the host's; the oldest lose theirs beyond it [default: 50]
    #[arg(long, env = "SANDCOVE_PAUSED_MEMORY", value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    paused_memory: Option<u32>,
    /// seconds after which the memory of a paused sandbox goes to disk, or `never`; needs CRIU, which `make up` fetches [default: 900]
    #[arg(long, env = "SANDCOVE_PARK_AFTER", value_name = "SECONDS", value_parser = park_after)]
    park_after: Option<ParkAfter>,
    /// directory of CRIU, which stores memory on disk [default: `criu` in the data directory]
    #[arg(long, env = "SANDCOVE_CRIU", value_name = "DIR")]
    criu: Option<PathBuf>,
    /// maximum size of a volume, GiB [default: 10]
    #[arg(long, env = "SANDCOVE_VOLUME_SIZE_GIB", value_name = "GIB")]
    volume_size_gib: Option<u64>,
    /// requests per minute that a team may send to each API call [default: no limit]
    #[arg(long, env = "SANDCOVE_RATE_LIMIT", value_name = "N")]
    rate_limit: Option<u32>,
    /// deliver webhooks to private networks and to this host too
    #[arg(long, env = "SANDCOVE_PRIVATE_WEBHOOKS", value_parser = clap::builder::FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    private_webhooks: bool,
    /// log system calls refused to sandboxes, in the kernel log
    #[arg(long, env = "SANDCOVE_SECCOMP_LOG", value_parser = clap::builder::FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    seccomp_log: bool,
    /// which sandboxes require their token to run code [default: secure]
    #[arg(long, env = "SANDCOVE_INTERPRETER_TOKEN", value_name = "WHICH", value_enum)]
    interpreter_token: Option<InterpreterToken>,
    /// refuse clients of the first generation, releases 0.x
    #[arg(long, env = "SANDCOVE_NO_LEGACY", value_parser = clap::builder::FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    no_legacy: bool,
    /// form of log lines [default: text]
    #[arg(long, env = "SANDCOVE_LOG_FORMAT", value_name = "FORMAT", value_enum)]
    log_format: Option<LogFormat>,
    /// serve no dashboard
    #[arg(long, env = "SANDCOVE_NO_DASHBOARD", value_parser = clap::builder::FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    no_dashboard: bool,
    /// number of the user and group that the server's process runs as; 0 for one process as root [default: 60888]
    #[arg(long, env = "SANDCOVE_SERVER_ACCOUNT", value_name = "ID", value_parser = clap::value_parser!(u32).range(..1_000_000_000))]
    server_account: Option<u32>,
    /// number of the user and group that the process of the egress proxies runs as; 0 for root [default: 60889]
    #[arg(long, env = "SANDCOVE_EGRESS_ACCOUNT", value_name = "ID", value_parser = clap::value_parser!(u32).range(..1_000_000_000))]
    egress_account: Option<u32>,
    /// size of the storage pool's image when it is created, GiB [default: most of the free space]
    #[arg(long, env = "SANDCOVE_POOL_SIZE_GIB", value_name = "GIB")]
    pool_size_gib: Option<u64>,
    /// sandboxes to pre-create for each template, so that a start does not wait; more for those in demand, 0 for none [default: 4]
    #[arg(long, env = "SANDCOVE_SPARES", value_name = "N")]
    spares: Option<usize>,
    /// memory of pre-created sandboxes up to which there are more of the templates in demand, percent of the host's [default: 5]
    #[arg(long, env = "SANDCOVE_POOL_MEMORY", value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=50))]
    pool_memory: Option<u32>,
    /// memory of the warm interpreters of teams' templates together, MiB; 0 for none [default: 4096]
    #[arg(long, env = "SANDCOVE_WARM_MEMORY", value_name = "MIB")]
    warm_memory: Option<u64>,
    /// memory of the warm interpreters that one team uses, MiB [default: 2048]
    #[arg(long, env = "SANDCOVE_TEAM_WARM_MEMORY", value_name = "MIB")]
    team_warm_memory: Option<u64>,
    /// Debian mirror for building templates [default: Debian's]
    #[arg(long, env = "SANDCOVE_DEBIAN_MIRROR", value_name = "URL")]
    debian_mirror: Option<String>,
    /// directory that caches built templates as tarballs [default: none]
    #[arg(long, env = "SANDCOVE_TEMPLATE_CACHE", value_name = "DIR")]
    template_cache: Option<PathBuf>,
    /// languages of the code interpreter; `lean` omits R, Java and Ruby, which are built in the background [default: all]
    #[arg(long, env = "SANDCOVE_LANGUAGES", value_name = "WHICH", value_enum)]
    languages: Option<LanguageChoice>,
    #[command(flatten)]
    builds: BuildLimitArgs,
    /// former name of `--languages all`, and with `=false` of `--languages lean`
    #[arg(long, env = "SANDCOVE_ALL_LANGUAGES", hide = true, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    all_languages: Option<bool>,
    /// OpenTelemetry collector that receives traces, logs and metrics, OTLP over HTTP [default: none]
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// kill all sandboxes when the server stops, instead of leaving them running
    #[arg(long)]
    stop_sandboxes: bool,
}

/// The settings of a server, after flags, variables, file and defaults are merged.
#[derive(Debug, Clone)]
pub struct Settings {
    pub data_dir: PathBuf,
    pub listen: SocketAddr,
    pub domain: Option<String>,
    /// Settings of TLS.
    pub tls: TlsSettings,
    pub network: String,
    pub dns: Option<Vec<IpAddr>>,
    pub max_sandboxes: u32,
    /// Memory that paused sandboxes may hold, percent of the host's.
    pub paused_memory: u32,
    /// Time after which the memory of a paused sandbox goes to disk; never when unset.
    pub park_after: Option<Duration>,
    /// Directory of CRIU. It need not exist.
    pub criu: PathBuf,
    pub volume_size_gib: u64,
    pub rate_limit: Option<u32>,
    pub private_webhooks: bool,
    pub seccomp_log: bool,
    pub interpreter_token: InterpreterToken,
    /// Whether clients of the first generation are served.
    pub legacy: bool,
    /// The form of log lines.
    pub log_format: LogFormat,
    /// Whether the dashboard is served.
    pub dashboard: bool,
    /// User and group of the server process; 0 for a server in one process, as root.
    pub server_account: u32,
    /// User and group of the process of the egress proxies; 0 for root.
    pub egress_account: u32,
    pub pool_size_gib: Option<u64>,
    pub spares: usize,
    /// Memory of pooled sandboxes that only demand asks for, percent of the host's.
    pub pool_memory: u32,
    /// Memory of warm interpreters.
    pub warm_memory: WarmMemory,
    pub debian_mirror: Option<String>,
    pub template_cache: Option<PathBuf>,
    /// The languages of the code interpreter.
    pub languages: LanguageChoice,
    /// Where traces and logs are sent.
    pub otlp: Endpoints,
    /// Where metrics are sent, the whole URL.
    pub metrics_to: Option<Secret>,
    pub stop_sandboxes: bool,
    /// Settings of template builds.
    pub builds: BuildChoices,
    pub api_key: Option<Secret>,
    pub access_token: Option<Secret>,
    pub admin_token: Option<Secret>,
}

/// A domain that clients can look up, with a port or without.
fn host_name(domain: String) -> Result<String> {
    let (host, port) = domain.split_once(':').map_or((&*domain, None), |(host, port)| (host, Some(port)));
    if DnsName::try_from(host).is_err() || port.is_some_and(|port| port.parse::<u16>().is_err()) {
        bail!(
            "invalid domain `{domain}`; use a host name such as `sandboxes.example.com` or `localhost:3000`"
        );
    }
    Ok(domain)
}

impl Settings {
    /// Merges flags and environment (which clap has merged already) with the file.
    pub fn resolve(place: &DataDir, args: &ServerArgs) -> Result<Self> {
        let file = file::read(place.config.as_deref())?;
        let secret = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty()).map(Secret::new);
        let args = args.clone();
        let endpoint = |signal| {
            let (flag, file) = (args.otlp_endpoint.as_deref(), file.otlp_endpoint.as_deref());
            otlp::endpoint(signal, flag, file, |name| std::env::var(name).ok())
        };
        let otlp = Endpoints { traces: endpoint("traces"), logs: endpoint("logs") };
        let metrics_to = endpoint("metrics");
        let warm_memory = WarmMemory::default();
        let data_dir = place.data_dir.clone().or(file.data_dir).unwrap_or_else(|| DEFAULT_DATA_DIR.into());
        let ParkAfter(park_after) = args.park_after.or(file.park_after).unwrap_or_default();
        Ok(Self {
            criu: args.criu.or(file.criu).unwrap_or_else(|| data_dir.join("criu")),
            data_dir,
            park_after,
            listen: args.listen.or(file.listen).unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 3000))),
            domain: args.domain.or(file.domain).map(host_name).transpose()?,
            tls: TlsSettings::resolve(
                args.tls,
                TlsFile {
                    tls: file.tls,
                    tls_cert: file.tls_cert,
                    tls_key: file.tls_key,
                    redirect_listen: file.redirect_listen,
                    tls_only: file.tls_only,
                    public_address: file.public_address,
                    dns_listen: file.dns_listen,
                    acme_directory: file.acme_directory,
                    acme_ca: file.acme_ca,
                    acme_check: file.acme_check,
                },
            )?,
            network: args.network.or(file.network).unwrap_or_else(|| "10.213.0.0/16".to_owned()),
            dns: args.dns.or(file.dns),
            max_sandboxes: args.max_sandboxes.or(file.max_sandboxes).unwrap_or(1000),
            paused_memory: args.paused_memory.or(file.paused_memory).unwrap_or(50),
            volume_size_gib: args.volume_size_gib.or(file.volume_size_gib).unwrap_or(10),
            rate_limit: args.rate_limit.or(file.rate_limit),
            private_webhooks: args.private_webhooks || file.private_webhooks,
            seccomp_log: args.seccomp_log || file.seccomp_log,
            interpreter_token: args.interpreter_token.or(file.interpreter_token).unwrap_or_default(),
            legacy: !(args.no_legacy || file.no_legacy),
            log_format: args.log_format.or(file.log_format).unwrap_or_default(),
            dashboard: !(args.no_dashboard || file.no_dashboard),
            server_account: args.server_account.or(file.server_account).unwrap_or(DEFAULT_SERVER_ACCOUNT),
            egress_account: args.egress_account.or(file.egress_account).unwrap_or(DEFAULT_EGRESS_ACCOUNT),
            pool_size_gib: args.pool_size_gib.or(file.pool_size_gib),
            spares: args.spares.or(file.spares).unwrap_or(4),
            pool_memory: args.pool_memory.or(file.pool_memory).unwrap_or(5),
            warm_memory: WarmMemory {
                total_mib: args.warm_memory.or(file.warm_memory).unwrap_or(warm_memory.total_mib),
                team_mib: args.team_warm_memory.or(file.team_warm_memory).unwrap_or(warm_memory.team_mib),
            },
            debian_mirror: args.debian_mirror.or(file.debian_mirror),
            template_cache: args.template_cache.or(file.template_cache),
            languages: args
                .languages
                .or(args.all_languages.map(LanguageChoice::from_all))
                .or(file.languages)
                .or(file.all_languages.map(LanguageChoice::from_all))
                .unwrap_or(LanguageChoice::All),
            otlp,
            metrics_to,
            stop_sandboxes: args.stop_sandboxes || file.stop_sandboxes,
            builds: BuildChoices::resolve(
                args.builds,
                BuildFile {
                    max_builds: file.max_builds,
                    gc_interval: file.gc_interval,
                    registry_mirrors: file.registry_mirrors,
                    insecure_registries: file.insecure_registries,
                    private_registries: file.private_registries,
                },
            ),
            api_key: secret("SANDCOVE_API_KEY").or(file.api_key),
            access_token: secret("SANDCOVE_ACCESS_TOKEN").or(file.access_token),
            admin_token: secret("SANDCOVE_ADMIN_TOKEN").or(file.admin_token),
        })
    }
}

impl DataDir {
    /// The data directory, for commands that need no other setting.
    pub fn path(&self) -> Result<PathBuf> {
        Ok(Settings::resolve(self, &ServerArgs::default())?.data_dir)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn resolve(config: &str, args: ServerArgs) -> Result<Settings> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sandcove.toml");
        std::fs::write(&path, config).unwrap();
        Settings::resolve(&DataDir { data_dir: None, config: Some(path) }, &args)
    }

    #[test]
    fn a_domain_is_a_host_name() {
        let domain = |text: &str| {
            let args = ServerArgs { domain: Some(text.into()), ..ServerArgs::default() };
            resolve("", args).map(|settings| settings.domain)
        };
        for text in ["localhost", "sbx.localhost:3000", "Sandboxes.example.com"] {
            assert_eq!(domain(text).unwrap().as_deref(), Some(text));
        }
        for text in ["bad_domain!", "", "a b", "localhost:", "localhost:70000", "https://example.com"] {
            assert!(domain(text).is_err(), "{text}");
        }
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let args = ServerArgs { max_sandboxes: Some(3), ..ServerArgs::default() };
        let settings = resolve("max-sandboxes = 7\nlisten = \"0.0.0.0:80\"", args).unwrap();
        assert_eq!(settings.max_sandboxes, 3);
        assert_eq!(settings.listen, "0.0.0.0:80".parse().unwrap());
        assert_eq!(settings.data_dir, Path::new(DEFAULT_DATA_DIR));
    }

    #[test]
    fn help_texts_name_the_real_defaults() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            place: DataDir,
            #[command(flatten)]
            args: ServerArgs,
        }
        let command = <Line as clap::CommandFactory>::command();
        let settings = resolve("", ServerArgs::default()).unwrap();
        let defaults = [
            ("data-dir", settings.data_dir.display().to_string()),
            ("listen", settings.listen.to_string()),
            ("network", settings.network),
            ("max-sandboxes", settings.max_sandboxes.to_string()),
            ("paused-memory", settings.paused_memory.to_string()),
            ("volume-size-gib", settings.volume_size_gib.to_string()),
            ("spares", settings.spares.to_string()),
            ("pool-memory", settings.pool_memory.to_string()),
            ("server-account", settings.server_account.to_string()),
            ("egress-account", settings.egress_account.to_string()),
            ("warm-memory", settings.warm_memory.total_mib.to_string()),
            ("team-warm-memory", settings.warm_memory.team_mib.to_string()),
        ];
        for (flag, default) in defaults {
            let arg = command.get_arguments().find(|arg| arg.get_long() == Some(flag)).unwrap();
            let help = arg.get_help().unwrap().to_string();
            assert!(help.ends_with(&format!("[default: {default}]")), "--{flag}: {help}");
        }
    }

    #[test]
    fn languages_are_all_unless_somebody_decides() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: ServerArgs,
        }
        let given = |flag, config| {
            let Line { args } = clap::Parser::parse_from(["serve", flag]);
            resolve(config, args).unwrap().languages
        };
        let in_file = |config| resolve(config, ServerArgs::default()).unwrap().languages;
        let (all, lean) = (LanguageChoice::All, LanguageChoice::Lean);
        assert_eq!(in_file(""), all);
        assert_eq!((in_file("languages = \"lean\""), in_file("languages = \"all\"")), (lean, all));
        assert_eq!(given("--languages=all", "languages = \"lean\""), all);
        assert_eq!(given("--languages=lean", ""), lean);
        assert!(resolve("languages = \"cobol\"", ServerArgs::default()).is_err());
        // The former option.
        assert_eq!(given("--all-languages", "all-languages = false"), all);
        assert_eq!(given("--all-languages=false", ""), lean);
        assert_eq!((in_file("all-languages = true"), in_file("all-languages = false")), (all, lean));
    }

    #[test]
    fn a_host_in_the_file_may_be_named() {
        let settings = resolve("listen = \"localhost:3002\"", ServerArgs::default()).unwrap();
        assert_eq!(settings.listen.port(), 3002);
    }

    #[test]
    fn a_misspelt_setting_is_an_error() {
        let error = resolve("max-sandboxen = 7", ServerArgs::default()).unwrap_err();
        assert!(format!("{error:#}").contains("max-sandboxen"), "{error:#}");
    }

    #[test]
    fn a_file_that_was_asked_for_must_exist() {
        let place = DataDir { data_dir: None, config: Some("/does/not/exist.toml".into()) };
        assert!(Settings::resolve(&place, &ServerArgs::default()).is_err());
    }

    #[test]
    fn secrets_do_not_show() {
        let settings = resolve("api-key = \"e2b_abc\"", ServerArgs::default()).unwrap();
        assert!(!format!("{settings:?}").contains("e2b_abc"));
    }
}
