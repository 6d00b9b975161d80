//! The messages of JSON-RPC 2.0, as far as the daemon's clients send them (contract: legacy-v0, section 3).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};

use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::guest::{MAX_MESSAGE, SMALL_MESSAGE};

/// Code of an error of a method.
const FAILED: i32 = -32000;
const INVALID_REQUEST: i32 = -32600;
const UNKNOWN_METHOD: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
const UNREADABLE: i32 = -32700;
/// Maximum number of parameters; no method has as many.
const MAX_PARAMS: usize = 8;
/// Maximum length of a path, bytes, as in the kernel.
const MAX_PATH: usize = 4096;
/// Maximum length of the text of an error, characters.
const MAX_ERROR: usize = 8192;
/// Maximum length of an id, as JSON, and of a name of the client's, bytes.
const MAX_NAME: usize = 256;

/// The id of a request as JSON. Answers have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Id(Box<str>);

/// A request that can be carried out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// The id of the answer; a request without one is not answered.
    pub(crate) id: Option<Id>,
    pub(crate) request: Request,
}

/// The requests of clients.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Subscribe(Topic),
    Unsubscribe(String),
    Start(Start),
    /// Writes to the input of a process or terminal.
    Input {
        program: ProgramId,
        text: String,
    },
    Resize {
        program: ProgramId,
        size: (u16, u16),
    },
    Kill(ProgramId),
    Files(Files),
}

/// The source of the events of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Topic {
    Program(ProgramId, Channel),
    Directory(String),
    OpenedPorts,
}

/// A process or terminal, which the client has named.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ProgramId {
    Process(String),
    Terminal(String),
}

/// A kind of events of a process or terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Channel {
    Stdout,
    Stderr,
    Data,
    Exit,
}

/// A program to start.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) program: ProgramId,
    /// The command line; a terminal may have none.
    pub(crate) line: Option<String>,
    pub(crate) envs: BTreeMap<String, String>,
    /// The working directory; may be empty.
    pub(crate) cwd: String,
    /// Columns and rows of a terminal.
    pub(crate) size: Option<(u16, u16)>,
}

/// A change or question about files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Files {
    List(String),
    Read(String, Encoding),
    Write(String, String, Encoding),
    MakeDirectory(String),
    Remove(String),
}

/// The form of a file's content in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Text,
    Base64,
}

/// The answer to a message that cannot be carried out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The text to send; a message without an id has none.
    pub(crate) answer: Option<String>,
}

impl ProgramId {
    /// The service whose events name the program.
    pub(crate) fn service(&self) -> &'static str {
        match self {
            Self::Process(_) => "process",
            Self::Terminal(_) => "terminal",
        }
    }

    /// The client's name of the program.
    pub(crate) fn name(&self) -> &str {
        let (Self::Process(name) | Self::Terminal(name)) = self;
        name
    }
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

/// Why a message cannot be carried out.
struct Fault {
    code: i32,
    message: String,
}

impl Fault {
    fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Reads a message.
pub(crate) fn read(text: &str) -> Result<Call, Refusal> {
    let null = || Id("null".into());
    let refuse = |id: Option<Id>, fault: Fault| Refusal {
        answer: id.map(|id| failure_with(&id, fault.code, &fault.message)),
    };
    let message: Message<'_> = serde_json::from_str(text).map_err(|error| {
        let fault = match error.classify() {
            Category::Data => Fault::new(INVALID_REQUEST, format!("invalid request: {error}")),
            Category::Syntax | Category::Eof | Category::Io => {
                Fault::new(UNREADABLE, format!("the message is not JSON: {error}"))
            }
        };
        refuse(Some(null()), fault)
    })?;
    let id = match message.id {
        None => None,
        Some(id) if is_id(id.get()) => Some(Id(id.get().into())),
        Some(_) => {
            let text = "invalid request: `id` has to be a string or number of at most 256 bytes";
            return Err(refuse(Some(null()), Fault::new(INVALID_REQUEST, text)));
        }
    };
    let read = || {
        let method = message
            .method
            .as_deref()
            .ok_or_else(|| Fault::new(INVALID_REQUEST, "invalid request: `method` is missing"))?;
        request(method, message.params)
    };
    match read() {
        Ok(request) => Ok(Call { id, request }),
        Err(fault) => Err(refuse(id, fault)),
    }
}

fn is_id(json: &str) -> bool {
    use serde_json::Value;
    json.len() <= MAX_NAME && matches!(serde_json::from_str(json), Ok(Value::String(_) | Value::Number(_)))
}

fn request(method: &str, params: Option<&RawValue>) -> Result<Request, Fault> {
    let unknown = || {
        let shown: String = method.chars().take(64).collect();
        Fault::new(UNKNOWN_METHOD, format!("the method {shown} does not exist/is not available"))
    };
    let (service, name) = method.split_once('_').ok_or_else(unknown)?;
    let carries_content = service == "filesystem" && matches!(name, "write" | "writeBase64");
    if !carries_content && params.is_some_and(|params| params.get().len() > SMALL_MESSAGE) {
        return Err(Fault::new(INVALID_PARAMS, "invalid params: too large"));
    }
    let params = || Params::read(params);
    let request = match (service, name) {
        ("process" | "terminal" | "filesystem" | "codeSnippet", "subscribe") => {
            Request::Subscribe(topic(service, &params()?)?)
        }
        ("process" | "terminal" | "filesystem" | "codeSnippet", "unsubscribe") => {
            Request::Unsubscribe(params()?.name(0)?)
        }
        ("process", "start") => {
            let params = params()?;
            Request::Start(Start {
                program: ProgramId::Process(params.name(0)?),
                line: Some(params.get(1)?),
                envs: params.optional(2)?.unwrap_or_default(),
                cwd: params.optional(3)?.unwrap_or_default(),
                size: None,
            })
        }
        ("terminal", "start") => {
            let params = params()?;
            Request::Start(Start {
                program: ProgramId::Terminal(params.name(0)?),
                size: Some(params.size(1)?),
                envs: params.optional(3)?.unwrap_or_default(),
                line: params.optional::<String>(4)?.filter(|line| !line.is_empty()),
                cwd: params.optional(5)?.unwrap_or_default(),
            })
        }
        ("process", "stdin") => {
            let params = params()?;
            Request::Input { program: ProgramId::Process(params.name(0)?), text: params.get(1)? }
        }
        ("terminal", "data") => {
            let params = params()?;
            Request::Input { program: ProgramId::Terminal(params.name(0)?), text: params.get(1)? }
        }
        ("terminal", "resize") => {
            let params = params()?;
            Request::Resize { program: ProgramId::Terminal(params.name(0)?), size: params.size(1)? }
        }
        ("process", "kill") => Request::Kill(ProgramId::Process(params()?.name(0)?)),
        ("terminal", "destroy") => Request::Kill(ProgramId::Terminal(params()?.name(0)?)),
        ("filesystem", name) => Request::Files(files(name, params)?.ok_or_else(unknown)?),
        _ => return Err(unknown()),
    };
    Ok(request)
}

fn files<'a>(name: &str, params: impl Fn() -> Result<Params<'a>, Fault>) -> Result<Option<Files>, Fault> {
    let path = || params()?.path(0);
    let write = |encoding| {
        let params = params()?;
        Ok(Files::Write(params.path(0)?, params.get(1)?, encoding))
    };
    Ok(Some(match name {
        "list" => Files::List(path()?),
        "read" => Files::Read(path()?, Encoding::Text),
        "readBase64" => Files::Read(path()?, Encoding::Base64),
        "write" => write(Encoding::Text)?,
        "writeBase64" => write(Encoding::Base64)?,
        "makeDir" => Files::MakeDirectory(path()?),
        "remove" => Files::Remove(path()?),
        _ => return Ok(None),
    }))
}

fn topic(service: &str, params: &Params<'_>) -> Result<Topic, Fault> {
    let name = params.name(0)?;
    let channel = match (service, name.as_str()) {
        ("process", "onStdout") => Channel::Stdout,
        ("process", "onStderr") => Channel::Stderr,
        ("process" | "terminal", "onExit") => Channel::Exit,
        ("terminal", "onData") => Channel::Data,
        ("filesystem", "watchDir") => return Ok(Topic::Directory(params.path(1)?)),
        ("codeSnippet", "scanOpenedPorts") => return Ok(Topic::OpenedPorts),
        _ => {
            let text = format!("no \"{name}\" subscription in {service} namespace");
            return Err(Fault::new(UNKNOWN_METHOD, text));
        }
    };
    let program = match service {
        "process" => ProgramId::Process(params.name(1)?),
        _ => ProgramId::Terminal(params.name(1)?),
    };
    Ok(Topic::Program(program, channel))
}

/// The parameters of a request: never more than a few, whatever their sizes.
struct Params<'a>(Vec<&'a RawValue>);

impl<'a> Params<'a> {
    fn read(json: Option<&'a RawValue>) -> Result<Self, Fault> {
        match json {
            None => Ok(Self(Vec::new())),
            Some(json) => serde_json::from_str(json.get()).map_err(|error| invalid(&error)),
        }
    }

    fn get<T: DeserializeOwned>(&self, index: usize) -> Result<T, Fault> {
        self.optional(index)?.ok_or_else(|| invalid(&format!("missing value for required argument {index}")))
    }

    /// The parameter at an index; `None` when it is missing or null.
    fn optional<T: DeserializeOwned>(&self, index: usize) -> Result<Option<T>, Fault> {
        let Some(json) = self.0.get(index) else { return Ok(None) };
        serde_json::from_str(json.get()).map_err(|error| invalid(&format!("argument {index}: {error}")))
    }

    /// A short text.
    fn name(&self, index: usize) -> Result<String, Fault> {
        let name: String = self.get(index)?;
        if name.len() > MAX_NAME {
            return Err(invalid(&format!("argument {index}: longer than {MAX_NAME} bytes")));
        }
        Ok(name)
    }

    /// A path. One that is not absolute begins at the home directory.
    fn path(&self, index: usize) -> Result<String, Fault> {
        let path: String = self.get(index)?;
        if path.len() > MAX_PATH {
            return Err(invalid(&format!("argument {index}: longer than {MAX_PATH} bytes")));
        }
        Ok(absolute(&path))
    }

    fn size(&self, index: usize) -> Result<(u16, u16), Fault> {
        Ok((self.cells(index)?, self.cells(index + 1)?))
    }

    fn cells(&self, index: usize) -> Result<u16, Fault> {
        let number: f64 = self.get(index)?;
        // Casts of numbers that do not fit saturate.
        Ok((number as u16).max(1))
    }
}

fn invalid(why: &impl fmt::Display) -> Fault {
    Fault::new(INVALID_PARAMS, format!("invalid params: {why}"))
}

impl<'de: 'a, 'a> Deserialize<'de> for Params<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Few;
        impl<'de> Visitor<'de> for Few {
            type Value = Vec<&'de RawValue>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an array of at most {MAX_PARAMS} values")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Self::Value, A::Error> {
                let mut few = Vec::new();
                while let Some(value) = values.next_element()? {
                    if few.len() == MAX_PARAMS {
                        return Err(serde::de::Error::invalid_length(MAX_PARAMS + 1, &self));
                    }
                    few.push(value);
                }
                Ok(few)
            }
        }
        deserializer.deserialize_seq(Few).map(Self)
    }
}

/// The path with the home directory in front, unless it is absolute.
pub(crate) fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/home/user/{path}") }
}

/// The answer to a request that was carried out; an error instead when it is too large for a message.
pub(crate) fn success(id: &Id, result: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Success<'a, T> {
        jsonrpc: &'static str,
        id: &'a RawValue,
        result: &'a T,
    }
    let answer = id.raw().and_then(|id| bounded(&Success { jsonrpc: "2.0", id: &id, result }));
    answer.unwrap_or_else(|_| failure(id, "the result is too large for a message; download the file instead"))
}

/// The answer to a request that failed.
pub(crate) fn failure(id: &Id, message: &str) -> String {
    failure_with(id, FAILED, message)
}

fn failure_with(id: &Id, code: i32, message: &str) -> String {
    let message = serde_json::Value::from(message.chars().take(MAX_ERROR).collect::<String>());
    format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":{code},"message":{message}}}}}"#, id.0)
}

/// An event of a subscription.
pub(crate) fn event(
    service: &str,
    subscription: &str,
    result: &impl Serialize,
) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Event<'a, T> {
        jsonrpc: &'static str,
        method: String,
        params: EventParams<'a, T>,
    }
    #[derive(Serialize)]
    struct EventParams<'a, T> {
        subscription: &'a str,
        result: &'a T,
    }
    let params = EventParams { subscription, result };
    bounded(&Event { jsonrpc: "2.0", method: format!("{service}_subscription"), params })
}

impl Id {
    fn raw(&self) -> serde_json::Result<Box<RawValue>> {
        RawValue::from_string(self.0.to_string())
    }
}

/// Writes a value as JSON, unless that is too large for a message.
fn bounded(value: &impl Serialize) -> serde_json::Result<String> {
    struct Bounded(Vec<u8>);
    impl Write for Bounded {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0.len() + bytes.len() > MAX_MESSAGE {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            self.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut bounded = Bounded(Vec::new());
    serde_json::to_writer(&mut bounded, value)?;
    String::from_utf8(bounded.0).map_err(serde::ser::Error::custom)
}

#[cfg(test)]
mod tests;
