# make up      install what is missing, build, put `sandcove` on PATH, start a server in the background, print what clients set
# make test    everything that is tested: Rust, the official Python and JavaScript SDKs, the evaluator
#
# Standard output is only what programs may read: `eval "$(make up)"` works. Progress is reported on standard error.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := up

TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
export SANDCOVE_GUEST_DIR := $(TARGET)/guest-bin
export CARGO_TERM_COLOR ?= auto
# `make test PROFILE=dev` takes less time to build, and tests what is slower.
PROFILE ?= release
BUILT := $(TARGET)/$(PROFILE:dev=debug)
SANDCOVE := $(BUILT)/sandcove
# The command without shared objects, which `make static` builds.
TRIPLE = $(shell rustc --version --verbose 2>/dev/null | sed --quiet 's/^host: //p')
STATIC = $(TARGET)/$(TRIPLE)/$(PROFILE:dev=debug)/sandcove
# Packages, below this directory whatever the target directory is: crates/cli/Cargo.toml names their files.
DIST := $(CURDIR)/target/dist
# The maintainer of the package is who builds it, as for other tools of Debian.
MAINTAINER := $(if $(DEBEMAIL),$(or $(DEBFULLNAME),Sandcove) <$(DEBEMAIL)>)
# Where `make install` puts the command.
PREFIX ?= /usr/local
# A development build is of the whole workspace, as that of the tests is: what both need is then built once.
PACKAGES := --workspace $(if $(filter dev,$(PROFILE)),,--exclude xtask --exclude sandcove-fuzz)
# Builds what both sides of the wall are made of, and the programs for the inside of sandboxes.
CARGO_GUESTS = cargo build --locked --profile $(PROFILE) $(PACKAGES) --exclude sandcove-cli
DATA_DIR := $(or $(SANDCOVE_DATA_DIR),/var/lib/sandcove)

TOOLS := mmdebstrap:mmdebstrap mkfs.btrfs:btrfs-progs nft:nftables ip:iproute2 setpriv:util-linux gcc:gcc \
  make:make tar:tar zstd:zstd debian-archive-keyring.gpg:debian-archive-keyring

.PHONY: up down install dist criu build static test check advisories fmt docs reference bench clean tools

# On the first build, the templates are built and CRIU is fetched while the compiler works.
up: tools
	@if [ ! -e $(SANDCOVE) ] && [ "$$(id -u)" -eq 0 ] && [ -z "$${SANDCOVE_TEMPLATE_CACHE:-}" ] && [ ! -e $(DATA_DIR) ]; then \
	  $(CARGO_GUESTS) --bin sandcove-layers; \
	  { $(BUILT)/sandcove-layers $(DATA_DIR); $(MAKE) --no-print-directory criu; } & \
	  trap "kill $$! 2>/dev/null || true" EXIT; \
	  $(MAKE) --no-print-directory install; \
	  wait $$! || true; \
	else $(MAKE) --no-print-directory install; fi
	@$(MAKE) --no-print-directory criu
	@$(SANDCOVE) up

# CRIU, which stores the memory of paused sandboxes on disk. Without it their memory is kept while the host is up.
criu:
	@if [ "$$(id -u)" -eq 0 ] && [ ! -x $(DATA_DIR)/criu/criu ]; then \
	  echo "fetching CRIU, which keeps the memory of paused sandboxes on disk" >&2; \
	  packaging/criu/fetch $(DATA_DIR)/criu >/dev/null || \
	    echo "CRIU was not fetched: paused sandboxes keep their memory only while this host is up" >&2; \
	fi

down:
	@$(SANDCOVE) down

install: build
	@packaging/place $(SANDCOVE) "$(DESTDIR)" $(PREFIX)

# A package for Debian, archives for other systems, an OCI image, the bill of materials, the crates of the Rust client, and digests of all, in target/dist. They are
# built for the C library of this host, so they run on Debian releases as old as this one and on newer ones; the static archive needs no C library. The image needs
# root, mmdebstrap, umoci and a mirror of Debian, and is left out otherwise.
dist: export PATH := $(PATH):$(TARGET)/tools/bin
dist: build static
	@command -v cargo-deb >/dev/null || cargo install --quiet --locked --root $(TARGET)/tools cargo-deb
	@rm -rf $(DIST); mkdir -p $(DIST)
	@version=$$($(SANDCOVE) --version | cut -d' ' -f2); name=sandcove-$$version-$$(uname -m)-linux; \
	packaging/place $(SANDCOVE) $(DIST)/root /usr --service; \
	cargo deb --quiet --no-build --no-strip --package sandcove-cli --output $(DIST)/ \
	  $(if $(MAINTAINER),--maintainer "$(MAINTAINER)"); \
	packaging/place $(SANDCOVE) $(DIST)/$$name "" --service 2>/dev/null; \
	packaging/place $(STATIC) $(DIST)/$$name-static "" --service 2>/dev/null; \
	for archive in $$name.tar.zst $$name-static.tar.gz; do \
	  cp LICENSE README.md CHANGELOG.md $(DIST)/$${archive%.tar.*}/; \
	  tar --create --auto-compress --owner=0 --group=0 --numeric-owner --sort=name --directory $(DIST) \
	    --file $(DIST)/$$archive $${archive%.tar.*}; \
	done; \
	if [ "$$(id -u)" -ne 0 ] || ! command -v mmdebstrap >/dev/null || ! command -v umoci >/dev/null; then \
	  echo "no OCI image was built: it needs root, mmdebstrap and umoci" >&2; \
	elif ! packaging/image $(DIST)/sandcove_*.deb $(DIST)/$$name.oci.tar; then \
	  echo "no OCI image was built: \`packaging/image\` failed" >&2; \
	fi; \
	cargo xtask sbom >$(DIST)/sandcove-$$version.cdx.json; \
	cargo package --quiet --locked --no-verify --allow-dirty --package sandcove-wire --package sandcove-client 2>/dev/null; \
	cp $(TARGET)/package/sandcove-{wire,client}-$$version.crate $(DIST)/
	@cd $(DIST) && rm -rf root sandcove-*-linux sandcove-*-linux-static && sha256sum sandcove* >SHA256SUMS && ls -l >&2

# On Debian and Ubuntu, as root, packages are installed; elsewhere what is missing is named.
tools:
	@missing=(); \
	for pair in $(TOOLS); do \
	  name=$${pair%%:*} package=$${pair#*:}; \
	  command -v "$$name" >/dev/null || [ -e "/usr/sbin/$$name" ] || [ -e "/usr/share/keyrings/$$name" ] || missing+=("$$package"); \
	done; \
	if [ $${#missing[@]} -gt 0 ]; then \
	  if [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing $${missing[*]}" >&2; \
	    export DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes; \
	    apt-get -qq update >&2; \
	    apt-get -qq --yes --no-install-recommends install "$${missing[@]}" >/dev/null; \
	  else \
	    echo "please install: $${missing[*]}" >&2; exit 1; \
	  fi; \
	fi; \
	command -v cargo >/dev/null || { echo "please install Rust: https://rustup.rs" >&2; exit 1; }

# First what both sides of the wall are made of and the programs for the inside of sandboxes, then the command, which embeds those.
# The same packages are named in both steps but for the command's: features are then the same, and nothing is compiled twice.
build: tools
	@[ -e $(SANDCOVE) ] || echo "building Sandcove (README.md says how long it takes)" >&2
	@$(CARGO_GUESTS)
	@mkdir -p $(SANDCOVE_GUEST_DIR)/python
	@for program in sandcove-agent sandcove-interpreter; do \
	  cmp --silent $(BUILT)/$$program $(SANDCOVE_GUEST_DIR)/$$program || \
	    install -m 0755 $(BUILT)/$$program $(SANDCOVE_GUEST_DIR)/$$program; \
	done
	@if ! diff --recursive --brief --exclude=__pycache__ crates/interpreter/python/sandcove_kernel \
	    $(SANDCOVE_GUEST_DIR)/python/sandcove_kernel >/dev/null 2>&1; then \
	  rm -rf $(SANDCOVE_GUEST_DIR)/python/sandcove_kernel; \
	  cp --recursive crates/interpreter/python/sandcove_kernel $(SANDCOVE_GUEST_DIR)/python/; \
	fi
	@cargo build --locked --profile $(PROFILE) $(PACKAGES)

# The command for hosts with another C library, or with none. Everything that it is made of is compiled once more for it: getrandom finds its
# system call by the dynamic linker otherwise. The target is named so that procedural macros, which are shared objects, do not get the flags.
static: build
	@RUSTFLAGS='-C target-feature=+crt-static --cfg getrandom_backend="linux_getrandom"' \
	  cargo build --locked --profile $(PROFILE) --target $(TRIPLE) $(PACKAGES) --bin sandcove

test: build
	@SANDCOVE_BIN=$(SANDCOVE) tests/run

check:
	cargo fmt --all --check
	cargo clippy --quiet --locked --workspace --all-targets -- -D warnings
	cargo xtask check-deps
	cargo xtask words
	cargo xtask codegen-check
	@if command -v npm >/dev/null; then cd crates/server/dashboard && npm ci --silent --no-audit --no-fund && npm run --silent check; \
	else echo "npm is not installed: the built pages of the dashboard were not compared with their sources"; fi
	@if command -v npm >/dev/null; then cd crates/eval/typescript && npm ci --silent --no-audit --no-fund && npm run --silent check; \
	else echo "npm is not installed: what runs TypeScript was not compared with its sources"; fi
	@if command -v cargo-deny >/dev/null; then cargo deny --log-level error check; \
	else echo "cargo-deny is not installed: advisories were not checked; \`make advisories\` installs it"; fi

# RustSec's advisories on all dependencies. The database is a git repository at github.com, so this is no part of CI.
advisories: export PATH := $(PATH):$(TARGET)/tools/bin
advisories:
	@command -v cargo-deny >/dev/null || cargo install --quiet --locked --root $(TARGET)/tools cargo-deny
	@cargo deny --log-level error check advisories

fmt:
	cargo fmt --all

# The documentation as a site, in target/book. mdbook is installed below the target directory unless it is on PATH; building the site
# needs no network.
docs: export PATH := $(PATH):$(TARGET)/tools/bin
docs:
	@command -v mdbook >/dev/null || cargo install --quiet --locked --root $(TARGET)/tools mdbook
	@mdbook build --dest-dir $(TARGET)/book
	@echo "open $(TARGET)/book/index.html" >&2

# The generated pages of docs/reference. The tests of the same crate fail while they differ from the code.
reference:
	@UPDATE_REFERENCE=1 cargo test --quiet --locked --package sandcove-cli reference >/dev/null
	@git --no-pager diff --stat -- docs/reference

bench: up
	$(SANDCOVE) bench -n 50 --pause 300
	$(SANDCOVE) bench -n 50 --concurrency 10
	$(SANDCOVE) bench --concurrency 100 --first pandas --warm 0
	$(SANDCOVE) bench --hold 50 --concurrency 4
	python3 bench/peers.py --sandcove $(SANDCOVE)

clean:
	cargo clean
	rm -rf tests/.venv tests/sdk-js/node_modules
