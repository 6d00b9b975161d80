//! Templates and their builds (contract: templates, sections 3-8 and 16).

use std::time::Duration;

use http::header::CONTENT_LENGTH;
use http::{HeaderName, HeaderValue, Method, Uri};
use sandcove_wire::api::build::{
    BuildInfo, BuildLogEntry, BuildLogs, BuildReason, CollectGarbage, Garbage, NewTemplate, RequestedBuild,
    StartBuild, UploadLink,
};
use sandcove_wire::api::template::{
    BuildStatus, Template, TemplateAlias, TemplateNames, TemplateUpdate, TemplateWithBuilds,
};
use tokio::fs::File;
use tokio::io::{AsyncSeekExt, AsyncWrite};

use crate::body;
use crate::error::{Error, Result, server_of};
use crate::query::LogFilter;
use crate::server::{Client, segment};
use crate::upload::streamed;

/// Pause between two questions for the status of a build.
const POLL: Duration = Duration::from_millis(200);

/// How often in a row the question for the status may fail before the build is given up: a server may restart.
const MAX_FAILURES: u32 = 25;

/// How a build ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildEnd {
    /// The template is ready.
    Ready,
    /// The build failed.
    Failed(BuildReason),
}

impl Client {
    /// Requests a build: reserves the ids of the template and the build, which waits until [`Self::start_build`].
    ///
    /// # Errors
    /// If the server refuses the name, the tags or the resources.
    pub async fn request_build(&self, new: &NewTemplate) -> Result<RequestedBuild> {
        self.json(Method::POST, "/v3/templates", Some(new)).await
    }

    /// A link for the upload of the file set with this hash.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn upload_link(&self, template: &str, hash: &str) -> Result<UploadLink> {
        let path = format!("/templates/{}/files/{}", segment(template), segment(hash));
        self.json(Method::GET, &path, None::<&()>).await
    }

    /// Uploads the archive of a file set, from the current position of the file to its end, with the exact length and without the key.
    ///
    /// # Errors
    /// If the file cannot be read or the server refuses the archive.
    pub async fn upload(&self, link: &UploadLink, mut archive: File) -> Result<()> {
        let Some(url) = &link.url else {
            let reason = "the link for an upload has no address".to_owned();
            return Err(Error::Malformed { url: self.url().to_owned(), reason });
        };
        // The query has a token.
        let shown = || url.split('?').next().unwrap_or_default().to_owned();
        let unreadable = |error: std::io::Error| Error::Unreachable { url: shown(), cause: error.into() };
        let at = archive.stream_position().await.map_err(unreadable)?;
        let length = archive.metadata().await.map_err(unreadable)?.len().saturating_sub(at);
        let base = server_of(url);
        // What goes to the server with TLS goes nowhere without.
        let scheme = |url: &str| url.parse::<Uri>().ok()?.scheme_str().map(str::to_owned);
        if scheme(url).is_none() || scheme(url) != scheme(self.url()) {
            return Err(Error::Address(shown()));
        }
        let mut headers = vec![(CONTENT_LENGTH, HeaderValue::from(length))];
        for (name, value) in link.headers.iter().flatten() {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value))
                && name != CONTENT_LENGTH
            {
                headers.push((name, value));
            }
        }
        let body = streamed(archive, Some(length));
        let sent = self.transport.send_to(base, Method::PUT, &url[base.len()..], &headers, body).await;
        sent.map(drop).map_err(|error| match error {
            Error::Refused { status, message, .. } => Error::Refused { url: shown(), status, message },
            Error::Status { status, message, .. } => Error::Status { url: shown(), status, message },
            Error::Unreachable { cause, .. } => Error::Unreachable { url: shown(), cause },
            other => other,
        })
    }

    /// Starts a requested build.
    ///
    /// # Errors
    /// If the server refuses the steps, or the build has been started before.
    pub async fn start_build(&self, template: &str, build: &str, start: &StartBuild) -> Result<()> {
        let path = format!("/v2/templates/{}/builds/{}", segment(template), segment(build));
        self.call(Method::POST, &path, Some(start)).await.map(drop)
    }

    /// Copies a template as an archive of an OCI layout to `out`, as it arrives. The callback gets the number of bytes so far: 0 once the
    /// server has found the template. The first byte comes when the server has read all files for their digest.
    ///
    /// # Errors
    /// If there is no such template, the server breaks off, or `out` cannot be written.
    pub async fn export_template(
        &self,
        template: &str,
        out: &mut (impl AsyncWrite + Unpin),
        on_progress: impl FnMut(u64),
    ) -> Result<()> {
        let path = format!("/templates/{}/export", segment(template));
        let body = self.call(Method::GET, &path, None::<&()>).await?.into_body();
        body::copy(body, self.transport.url(&path), out, on_progress).await
    }

    /// Deletes what the team's builds have cached and no template needs, or says what would be deleted.
    ///
    /// # Errors
    /// If builds are in progress.
    pub async fn collect_garbage(&self, dry_run: bool) -> Result<Garbage> {
        self.json(Method::POST, "/templates/gc", Some(&CollectGarbage { dry_run })).await
    }

    /// The status of a build, with at most 100 entries of its log from `offset` on.
    ///
    /// # Errors
    /// If the server does not know the build.
    pub async fn build_status(&self, template: &str, build: &str, offset: usize) -> Result<BuildInfo> {
        let (template, build) = (segment(template), segment(build));
        let path = format!("/templates/{template}/builds/{build}/status?logsOffset={offset}");
        self.json(Method::GET, &path, None::<&()>).await
    }

    /// The entries of the log of a build that a filter matches, at most 100.
    ///
    /// # Errors
    /// If the server does not know the build, or refuses the filter.
    pub async fn build_logs(
        &self,
        template: &str,
        build: &str,
        filter: &LogFilter,
    ) -> Result<Vec<BuildLogEntry>> {
        let (template, build) = (segment(template), segment(build));
        let path = format!("/templates/{template}/builds/{build}/logs?{}", filter.query());
        Ok(self.json::<BuildLogs>(Method::GET, &path, None::<&()>).await?.logs)
    }

    /// Waits for the end of a build, and passes the entries of its log to the callback as they come.
    ///
    /// # Errors
    /// If the server does not know the build, or does not answer for several seconds.
    pub async fn follow_build(
        &self,
        template: &str,
        build: &str,
        mut on_entry: impl FnMut(&BuildLogEntry),
    ) -> Result<BuildEnd> {
        let mut offset = 0;
        let mut failures = 0;
        loop {
            let info = match self.build_status(template, build, offset).await {
                Ok(info) => info,
                Err(error) => {
                    let may_pass = error.status().is_none_or(|status| status == 429 || status >= 500);
                    failures += 1;
                    if !may_pass || failures >= MAX_FAILURES {
                        return Err(error);
                    }
                    tokio::time::sleep(POLL * failures.min(5)).await;
                    continue;
                }
            };
            failures = 0;
            offset += info.log_entries.len();
            info.log_entries.iter().for_each(&mut on_entry);
            // After the end, the rest of the log follows until a page is empty.
            let is_read = info.log_entries.is_empty();
            match info.status {
                BuildStatus::Ready if is_read => return Ok(BuildEnd::Ready),
                BuildStatus::Error if is_read => {
                    let reason = info.reason.unwrap_or_else(|| BuildReason {
                        message: "the build failed".to_owned(),
                        step: None,
                        log_entries: Vec::new(),
                    });
                    return Ok(BuildEnd::Failed(reason));
                }
                _ if is_read => tokio::time::sleep(POLL).await,
                _ => {}
            }
        }
    }

    /// Lists the templates of the team, newest first; all pages.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn templates(&self) -> Result<Vec<Template>> {
        self.pages("/v2/templates?limit=100").await
    }

    /// The templates that come with the server.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn default_templates(&self) -> Result<Vec<Template>> {
        self.json(Method::GET, "/default-templates", None::<&()>).await
    }

    /// A template with all its builds, by id or name.
    ///
    /// # Errors
    /// If the server does not know the template.
    pub async fn template(&self, template: &str) -> Result<TemplateWithBuilds> {
        let path = format!("/templates/{}?limit=100", segment(template));
        let (mut all, mut next) = self.page::<TemplateWithBuilds>(&path, None).await?;
        while let Some(token) = next {
            let (page, after) = self.page::<TemplateWithBuilds>(&path, Some(&token)).await?;
            all.builds.extend(page.builds);
            next = after;
        }
        Ok(all)
    }

    /// The template that a name stands for; `None` if there is none.
    ///
    /// # Errors
    /// If the server does not answer, or the template belongs to another team and is not public.
    pub async fn template_named(&self, name: &str) -> Result<Option<TemplateAlias>> {
        let path = format!("/templates/aliases/{}", segment(name));
        match self.json(Method::GET, &path, None::<&()>).await {
            Ok(alias) => Ok(Some(alias)),
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes a template, by id or name; false if there is none.
    ///
    /// # Errors
    /// If the server refuses, for example because sandboxes use the template.
    pub async fn delete_template(&self, template: &str) -> Result<bool> {
        self.delete(&format!("/templates/{}", segment(template))).await
    }

    /// Publishes a template, or takes that back, and returns its names with namespace.
    ///
    /// # Errors
    /// If the server does not know the template.
    pub async fn set_public(&self, template: &str, public: bool) -> Result<Vec<String>> {
        let path = format!("/v2/templates/{}", segment(template));
        let update = TemplateUpdate { public: Some(public) };
        let names: TemplateNames = self.json(Method::PATCH, &path, Some(&update)).await?;
        Ok(names.names)
    }
}

#[cfg(test)]
mod tests {
    use sandcove_wire::secret::Secret;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_upload_has_its_exact_length_and_no_key() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let contents = vec![b'z'; 200_000];
        let expected = contents.clone();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut received = Vec::new();
            while !received.ends_with(&expected) {
                let mut piece = [0; 4096];
                let count = stream.read(&mut piece).await.unwrap();
                received.extend_from_slice(&piece[..count]);
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            String::from_utf8(received[..received.len() - expected.len()].to_vec()).unwrap()
        });
        let path = std::env::temp_dir().join(format!("sandcove-upload-{}", std::process::id()));
        tokio::fs::write(&path, &contents).await.unwrap();
        let file = File::open(&path).await.unwrap();
        tokio::fs::remove_file(&path).await.unwrap();
        let headers = Some([("x-extra".to_owned(), "1".to_owned())].into());
        let link = UploadLink { present: false, url: Some(format!("{base}/upload/x?token=y")), headers };
        Client::new(&base, &Secret::new("e2b_key")).unwrap().upload(&link, file).await.unwrap();
        let head = server.await.unwrap().to_ascii_lowercase();
        assert!(head.starts_with("put /upload/x?token=y http/1.1\r\n"), "{head}");
        assert!(head.contains("content-length: 200000\r\n") && head.contains("x-extra: 1\r\n"), "{head}");
        assert!(!head.contains("chunked") && !head.contains("e2b_key"), "{head}");
    }

    #[test]
    fn a_name_with_namespace_and_tag_is_one_segment() {
        assert_eq!(segment("team/name:tag"), "team%2Fname%3Atag");
    }
}
