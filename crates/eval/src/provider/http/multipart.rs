//! Bodies with files and fields: `multipart`.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::document;
use super::error::HttpError;
use super::scope::Scope;
use crate::model::Object;
use crate::reading::files;
use crate::template::value::to_text;

/// Returns the type and the bytes of a body of `multipart/form-data`.
pub async fn encode(form: &Object, vars: &Object, scope: &Scope<'_>) -> Result<(String, Bytes), HttpError> {
    let boundary = format!("----sandcove-{}", uuid::Uuid::new_v4().simple());
    let mut body = Vec::new();
    let parts = form.get("parts").and_then(Value::as_array).into_iter().flatten();
    for part in parts.filter_map(Value::as_object) {
        let render = |text: &str| scope.templates.render(text, vars);
        let text = |key: &str| part.get(key).map(to_text).filter(|text| !text.is_empty());
        let name = quoted(&lines(&render(&text("name").unwrap_or_default())?));
        body.extend_from_slice(
            format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"").as_bytes(),
        );
        if text("kind").as_deref() == Some("file") {
            let file = load(part, &render, scope).await?;
            let given = text("filenameTemplate").or_else(|| text("filename"));
            let filename = quoted(&given.map_or_else(|| Ok(file.name), |given| render(&given))?);
            let kind = text("contentType").unwrap_or(file.kind);
            body.extend_from_slice(
                format!("; filename=\"{filename}\"\r\nContent-Type: {kind}\r\n\r\n").as_bytes(),
            );
            body.extend_from_slice(&file.bytes);
        } else {
            let value = render(&text("value").unwrap_or_default())?;
            let value = lines(&value);
            body.extend_from_slice(format!("\r\n\r\n{value}").as_bytes());
        }
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    Ok((format!("multipart/form-data; boundary={boundary}"), body.into()))
}

/// A file of a body.
struct File {
    name: String,
    kind: String,
    bytes: Vec<u8>,
}

async fn load(
    part: &Map<String, Value>,
    render: &impl Fn(&str) -> Result<String, crate::template::TemplateError>,
    scope: &Scope<'_>,
) -> Result<File, HttpError> {
    let source = part.get("source").and_then(Value::as_object);
    let text = |key: &str| source.and_then(|source| source.get(key)).map(to_text);
    if text("type").as_deref() == Some("path") {
        let path = render(&text("path").unwrap_or_default())?;
        let file = files::resolve(scope.base, &path);
        let bytes = tokio::fs::read(&file).await.map_err(|error| HttpError::Read { path, error })?;
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let kind = kind_of(&name).to_owned();
        return Ok(File { name, kind, bytes });
    }
    let said = render(&text("text").unwrap_or_else(|| document::TEXT.to_owned()))?;
    let (extension, kind, bytes) = match text("format").as_deref() {
        Some("png") => ("png", "image/png", document::png()),
        _ => ("pdf", "application/pdf", document::pdf(&said)),
    };
    Ok(File { name: format!("document.{extension}"), kind: kind.to_owned(), bytes })
}

fn kind_of(name: &str) -> &'static str {
    match files::extension(name).to_lowercase().as_str() {
        "pdf" => "application/pdf",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "bmp" => "image/bmp",
        "tif" | "tiff" => "image/tiff",
        "webp" => "image/webp",
        "txt" => "text/plain",
        "json" => "application/json",
        _ => "application/octet-stream",
    }
}

/// Lines of names and fields end as those of headers do.
fn lines(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n").replace('\n', "\r\n")
}

/// A name as it stands between quotes in the head of a part.
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}
