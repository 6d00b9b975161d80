use sandcove_dockerfile::plan::Options;
use sandcove_dockerfile::{Ignore, source};

use super::*;

async fn assembled(text: &str, files: &[&str]) -> Result<BTreeMap<usize, Assembled>> {
    with(text, files, &Pinned::new()).await
}

async fn with(text: &str, files: &[&str], pinned: &Pinned) -> Result<BTreeMap<usize, Assembled>> {
    let dir = tempfile::tempdir()?;
    for name in files {
        std::fs::write(dir.path().join(name), name)?;
    }
    let plan = Plan::new(&source::parse(text)?, &Options::default())?;
    let context = Context::new(dir.path(), Ignore::default())?;
    let downloads = dir.path();
    Sources { plan: &plan, file: "Dockerfile", context: &context, downloads, pinned }.assemble().await
}

#[tokio::test]
async fn steps_have_arguments_hashes_and_lines() {
    let text = "FROM x\nENV A=1\nCOPY --chmod=755 a b /d/\nRUN c\nCMD [\"r\"]";
    let all = assembled(text, &["a", "b"]).await.unwrap();
    let stage = &all[&0];
    let kinds: Vec<_> = stage.start.steps.iter().map(|step| step.kind.as_str()).collect();
    assert_eq!(kinds, ["USER", "WORKDIR", "ENV", "COPY", "COPY", "RUN", "USER", "WORKDIR"]);
    assert_eq!(stage.start.steps[3].args, ["a", "/d/", "", "0755"]);
    assert!(stage.start.steps[3].files_hash.as_ref().is_some_and(|hash| hash.len() == 64));
    assert_eq!((stage.files.len(), stage.start.start_cmd.as_deref()), (2, Some("r")));
    assert_eq!(stage.lines.of("5"), Some((3, "COPY --chmod=755 a b /d/")));
    assert_eq!(
        (stage.lines.of("base"), stage.lines.of("1"), stage.lines.of("99")),
        (Some((1, "FROM x")), None, None)
    );
}

#[tokio::test]
async fn a_stage_is_named_by_what_it_is_built_from() {
    let text = |command: &str| {
        format!("FROM x AS a\nRUN {command}\nFROM y AS unused\nCOPY none /\nFROM z\nCOPY --from=a /out /in")
    };
    let hash = async |text: String| {
        let all = assembled(&text, &[]).await.unwrap();
        assert_eq!(all.keys().copied().collect::<Vec<_>>(), [0, 2], "an unused stage is not built");
        all[&2].files[0].0.clone()
    };
    let (one, same, other) = (hash(text("c")).await, hash(text("c")).await, hash(text("d")).await);
    assert_eq!(one, same);
    assert_ne!(one, other);
}

#[tokio::test]
async fn files_of_a_template_are_those_of_its_build() {
    let hash = async |text: &str, build: &str| {
        let pinned = Pinned::from([("mine".to_owned(), build.to_owned())]);
        let all = with(text, &[], &pinned).await.unwrap();
        all.into_values().next_back().unwrap().files[0].0.clone()
    };
    for text in [
        "FROM x\nCOPY --from=template://mine /out /in",
        "FROM x\nRUN --mount=from=template://mine,target=/in true",
        "FROM template://mine AS a\nFROM x\nCOPY --from=a /out /in",
    ] {
        assert_eq!(hash(text, "1").await, hash(text, "1").await, "{text}");
        assert_ne!(hash(text, "1").await, hash(text, "2").await, "{text}");
    }
}

#[tokio::test]
async fn errors_name_the_line() {
    let error = assembled("FROM x\n\nCOPY none /d", &[]).await.unwrap_err().to_string();
    assert!(error.starts_with("Dockerfile:3: no files match `none`"), "{error}");
}
