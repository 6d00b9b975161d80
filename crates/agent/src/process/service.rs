//! The RPC handlers of processes.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use futures_util::{Stream, StreamExt, stream};
use rustix::process::Signal;
use rustix::termios::Winsize;
use sandcove_wire::envd::process::process_event::data_event::Output;
use sandcove_wire::envd::process::process_event::{DataEvent, Event, KeepAlive, StartEvent};
use sandcove_wire::envd::process::process_input::Input as InputBytes;
use sandcove_wire::envd::process::process_selector::Selector;
use sandcove_wire::envd::process::stream_input_request::Event as InputEvent;
use sandcove_wire::envd::process::{
    self as wire, CloseStdinRequest, CloseStdinResponse, ConnectRequest, ConnectResponse, ListRequest,
    ListResponse, ProcessEvent, ProcessInfo, ProcessInput, ProcessSelector, Pty, SendInputRequest,
    SendInputResponse, SendSignalRequest, SendSignalResponse, StartRequest, StartResponse,
    StreamInputRequest, StreamInputResponse, UpdateRequest, UpdateResponse,
};

use super::Processes;
use super::ending::end_event;
use super::output::{Channel, Item, Subscription};
use super::running::{Input, InputError, Plan, Process, Streams};
use crate::account::Account;
use crate::rpc::{Code, Error, Requests, Result, Router, with_keepalive};
use crate::spawn::{Controls, Credentials, Launch, SpawnError, Step, daemon_path};
use crate::state::{RequestContext, State};

/// Adds the service to `router`.
pub fn register(router: Router, processes: &Processes) -> Router {
    let with = || processes.clone();
    let (start, connect, list, update) = (with(), with(), with(), with());
    let (send, stream, signal, close) = (with(), with(), with(), with());
    router
        .server_stream("/process.Process/Start", move |context, request| {
            start.clone().start(context, request)
        })
        .server_stream("/process.Process/Connect", move |context, request| {
            connect.clone().connect(context, request)
        })
        .unary("/process.Process/List", move |_, ListRequest {}| std::future::ready(Ok(list.list())))
        .unary("/process.Process/Update", move |_, request| std::future::ready(update.update(request)))
        .unary("/process.Process/SendInput", move |_, request| send.clone().send_input(request))
        .client_stream("/process.Process/StreamInput", move |_, requests| {
            stream.clone().stream_input(requests)
        })
        .unary("/process.Process/SendSignal", move |_, request| {
            std::future::ready(signal.send_signal(request))
        })
        .unary("/process.Process/CloseStdin", move |_, request| close.clone().close_stdin(request))
}

impl Processes {
    async fn start(
        self,
        context: RequestContext,
        request: StartRequest,
    ) -> Result<impl Stream<Item = Result<StartResponse>>> {
        let plan = plan(&context, request)?;
        let directory = plan.launch.directory();
        // A task of its own, so that a client that disconnects cannot leave half a start behind.
        let start = tokio::spawn(async move { Process::start(plan, &self.children, &self.table).await });
        let started =
            start.await.map_err(|e| Error::internal(format!("failed to start the process: {e}")))?;
        let (process, subscription) = started.map_err(|error| start_error(&directory, &error))?;
        let events =
            events(process.id(), subscription).map(|event| event.map(|event| StartResponse { event }));
        Ok(with_keepalive(events, context.keepalive, || StartResponse { event: keepalive() }))
    }

    async fn connect(
        self,
        context: RequestContext,
        request: ConnectRequest,
    ) -> Result<impl Stream<Item = Result<ConnectResponse>>> {
        let selector = selector(request.process)?;
        let process = self.table.find(&selector).ok_or_else(|| not_found(&selector))?;
        let events = events(process.id(), process.subscribe());
        let events = events.map(|event| event.map(|event| ConnectResponse { event }));
        Ok(with_keepalive(events, context.keepalive, || ConnectResponse { event: keepalive() }))
    }

    fn list(&self) -> ListResponse {
        let info = |process: Arc<Process>| ProcessInfo {
            config: Some(process.config.clone()),
            pid: process.id(),
            tag: process.tag.clone(),
        };
        ListResponse { processes: self.table.live().into_iter().map(info).collect() }
    }

    fn update(&self, request: UpdateRequest) -> Result<UpdateResponse> {
        let process = self.live(request.process)?;
        if let Some(pty) = request.pty {
            process.resize(size(pty)).map_err(input_error)?;
        }
        Ok(UpdateResponse {})
    }

    async fn send_input(self, request: SendInputRequest) -> Result<SendInputResponse> {
        let process = self.live(request.process)?;
        write(&process, request.input).await?;
        Ok(SendInputResponse {})
    }

    async fn stream_input(self, mut requests: Requests<StreamInputRequest>) -> Result<StreamInputResponse> {
        let mut process = None;
        while let Some(request) = requests.next().await? {
            match (request.event, &process) {
                (Some(InputEvent::Start(start)), _) => process = Some(self.live(start.process)?),
                (Some(InputEvent::Data(data)), Some(process)) => write(process, data.input).await?,
                (Some(InputEvent::Data(_)), None) => {
                    return Err(Error::invalid_argument(
                        "input before the start event that says which process it is for",
                    ));
                }
                (Some(InputEvent::Keepalive(_)), _) => {}
                (None, _) => return Err(Error::unimplemented("the event is of no known kind")),
            }
        }
        Ok(StreamInputResponse {})
    }

    fn send_signal(&self, request: SendSignalRequest) -> Result<SendSignalResponse> {
        let process = self.live(request.process)?;
        let signal = match wire::Signal::try_from(request.signal) {
            Ok(wire::Signal::Sigkill) => Signal::KILL,
            Ok(wire::Signal::Sigterm) => Signal::TERM,
            _ => return Err(Error::unimplemented(format!("signal {} is not supported", request.signal))),
        };
        let sent = process.kill(&self.children, signal);
        sent.map_err(|e| Error::internal(format!("failed to signal process {}: {e}", process.id())))?;
        Ok(SendSignalResponse {})
    }

    async fn close_stdin(self, request: CloseStdinRequest) -> Result<CloseStdinResponse> {
        let process = self.live(request.process)?;
        process.close_stdin().await.map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
        Ok(CloseStdinResponse {})
    }

    fn live(&self, wanted: Option<ProcessSelector>) -> Result<Arc<Process>> {
        let selector = selector(wanted)?;
        self.table.find_live(&selector).ok_or_else(|| not_found(&selector))
    }
}

fn plan(context: &RequestContext, request: StartRequest) -> Result<Plan> {
    let StartRequest { process, pty, tag, stdin } = request;
    let config = process.unwrap_or_default();
    let account = context.account()?;
    let workdir = context.state.default_workdir();
    let directory =
        crate::path::resolve(config.cwd.as_deref().unwrap_or_default(), &account, workdir.as_deref())?;
    let environment = environment(&context.state, &account, &config.envs);
    let credentials = Credentials::of(&account);
    let launch =
        Launch::new(&config.cmd, &config.args, &environment, &directory, credentials, Controls::Workload);
    let streams = match (pty, stdin) {
        (Some(pty), _) => Streams::Terminal(size(pty)),
        // Clients before 2.0 never send this, and expect to be able to write.
        (None, None | Some(true)) => Streams::Pipes { input: Input::Open },
        (None, Some(false)) => Streams::Pipes { input: Input::Closed },
    };
    let launch = launch.map_err(|error| start_error(&directory, &error))?;
    Ok(Plan {
        launch,
        streams,
        uid: account.uid,
        config,
        tag,
        deadline: context.deadline,
        ends_together: context.state.ends_together(),
        on_exit: None,
    })
}

/// The variables of a process; of several with one name the last wins (contract: envd, section 2.2).
fn environment(
    state: &State,
    account: &Account,
    request: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut all = BTreeMap::from([
        ("PATH".to_owned(), daemon_path()),
        ("HOME".to_owned(), account.home.clone()),
        ("USER".to_owned(), account.name.clone()),
        ("LOGNAME".to_owned(), account.name.clone()),
    ]);
    all.extend(state.variables());
    all.extend(request.iter().map(|(name, value)| (name.clone(), value.clone())));
    all
}

fn events(pid: u32, subscription: Subscription) -> impl Stream<Item = Result<Option<ProcessEvent>>> {
    let start = ProcessEvent { event: Some(Event::Start(StartEvent { pid })) };
    stream::once(std::future::ready(Ok(Some(start)))).chain(subscription.map(|item| match item {
        Item::Data(chunk) => {
            let output = match chunk.channel {
                Channel::Stdout => Output::Stdout(chunk.bytes),
                Channel::Stderr => Output::Stderr(chunk.bytes),
                Channel::Terminal => Output::Pty(chunk.bytes),
            };
            Ok(Some(ProcessEvent { event: Some(Event::Data(DataEvent { output: Some(output) })) }))
        }
        Item::End(exit) => Ok(Some(ProcessEvent { event: Some(Event::End(end_event(exit))) })),
        Item::CutOff => {
            Err(Error::resource_exhausted("this stream was read too slowly while others waited for it"))
        }
    }))
}

fn keepalive() -> Option<ProcessEvent> {
    Some(ProcessEvent { event: Some(Event::Keepalive(KeepAlive {})) })
}

async fn write(process: &Process, input: Option<ProcessInput>) -> Result<()> {
    match input.and_then(|input| input.input) {
        Some(InputBytes::Stdin(bytes)) => process.write_stdin(&bytes).await.map_err(input_error),
        Some(InputBytes::Pty(bytes)) => process.write_terminal(&bytes).await.map_err(input_error),
        None => Err(Error::unimplemented("the input is of no known kind")),
    }
}

fn selector(wanted: Option<ProcessSelector>) -> Result<Selector> {
    wanted.and_then(|w| w.selector).ok_or_else(|| Error::unimplemented("no process is selected"))
}

fn size(pty: Pty) -> Winsize {
    let wire::pty::Size { cols, rows } = pty.size.unwrap_or_default();
    let short = |cells: u32| u16::try_from(cells).unwrap_or(u16::MAX);
    Winsize { ws_row: short(rows), ws_col: short(cols), ws_xpixel: 0, ws_ypixel: 0 }
}

fn not_found(selector: &Selector) -> Error {
    Error::not_found(match selector {
        Selector::Pid(pid) => format!("process with pid {pid} not found"),
        Selector::Tag(tag) => format!("process with tag `{tag}` not found"),
    })
}

fn input_error(error: InputError) -> Error {
    Error::internal(error.to_string())
}

/// Converts a failure to start. Clients expect all of them to be faults of the request.
fn start_error(directory: &str, error: &SpawnError) -> Error {
    let SpawnError::Setup { step: Step::Directory, source } = error else {
        return Error::invalid_argument(error.to_string());
    };
    Error::invalid_argument(match source.kind() {
        ErrorKind::NotFound => format!("cwd '{directory}' does not exist"),
        ErrorKind::NotADirectory => format!("cwd '{directory}' is not a directory"),
        _ => format!("failed to enter cwd '{directory}': {source}"),
    })
}
