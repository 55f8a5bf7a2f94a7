# The targets that people use. `make` needs Rust and gcc; what the others need besides, `deps` installs where it can.

PREFIX ?= /usr/local
CARGO ?= cargo
INSTALL ?= install
DEST = $(DESTDIR)$(PREFIX)
ZSH_COMPLETIONS = $(PREFIX)/share/zsh/site-functions
BINARY = target/release/redlock

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
HOMEPAGE := $(shell sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)
MAINTAINER := $(shell sed -n 's/^authors = \["\(.*\)"\]/\1/p' Cargo.toml)
COMMIT := $(shell [ ! -e .git ] || git rev-parse --short=10 HEAD 2>/dev/null)

.PHONY: build demo test model chaos fuzz mutants margins lint bench load install uninstall dist deb rpm release check-packages reproducible man keep-release clean deps

# Messages of panics name no directory of this machine. No crate has the time in it: with SOURCE_DATE_EPOCH for packages alone,
# those with C code would be built anew by each `make dist` behind a `make build`, and the other way round.
CARGO_DIRECTORY = $(or $(CARGO_HOME),$(HOME)/.cargo)
ANYWHERE = env -u SOURCE_DATE_EPOCH RUSTFLAGS="$$RUSTFLAGS --remap-path-prefix=$(CURDIR)=/redlock \
    --remap-path-prefix=$(CARGO_DIRECTORY)/registry/src=/crates \
    --remap-path-prefix=$$(rustc --print sysroot)/lib/rustlib/src/rust=/rustc/$$(rustc -vV | sed -n 's/^commit-hash: //p')"

# Linked statically, at a fixed address: it starts in half the time. (Flags for the last step only: what cargo passes to all
# crates would reach its own helpers too.)
STATIC = $(ANYWHERE) $(CARGO) rustc --release --locked --bin redlock -- -C target-feature=+crt-static -C relocation-model=static

build dist deb rpm: export REDLOCK_VERSION = $(VERSION)$(COMMIT:%= (%))

# All files of a package are as old as the last change.
dist deb rpm: export SOURCE_DATE_EPOCH := $(or $(SOURCE_DATE_EPOCH),$(shell \
    [ -e .git ] && git log -1 --format=%ct 2>/dev/null || date -r CHANGELOG.md +%s))

# For another architecture, aarch64 say, with its cross compiler (Debian: gcc-aarch64-linux-gnu):
#     rustup target add aarch64-unknown-linux-gnu
#     CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
#         cargo rustc --release --locked --bin redlock --target aarch64-unknown-linux-gnu -- -C target-feature=+crt-static
build:
	$(STATIC) || $(ANYWHERE) $(CARGO) build --release --locked

demo: build deps
	@bash tests/demo.sh $(BINARY)

# make test SERVER=/path/to/valkey-server tests with that server instead of the redis-server in PATH.
ifdef SERVER
export TEST_SERVER := $(abspath $(or $(shell command -v $(SERVER)),$(error $(SERVER) cannot be executed)))
endif

# Most tests wait most of their time. The models compute, and fill the memory, of which each fork by a test copies the map: they run
# by themselves.
THREADS = $(shell expr 3 \* $$(nproc))
test: deps
	$(APART) $(CARGO) test --locked --test main -- model::
	$(APART) $(CARGO) test --locked -- --skip model:: --skip alone:: --skip chaos:: --test-threads=$(THREADS)
	$(APART) $(CARGO) test --locked --test main -- chaos:: --test-threads=3

# In a session of its own, which ^C ends too. Under Linux 6.18 with autogroup, beside loops in the same session, all other processes wait
# for seconds at times, kernel threads too (git.kernel.org/torvalds/c/b3d99f43c72b mends it).
APART = sh -c 'setsid "$$@" & trap "kill -- -$$!" HUP INT QUIT TERM; wait $$!' --

# All models beside each other: for each search its states, its time, how far it went or after how many steps it found the fault of the
# clause that was left out, its bounds. LARGE=1 searches larger bounds too, which takes minutes and gigabytes.
model: export TEST_MODELS = $(CURDIR)/target/models
model: export LARGE_MODELS = $(LARGE)
model: deps
	@rm -f $(TEST_MODELS)
	$(if $(LARGE),,unset LARGE_MODELS;) $(CARGO) test --locked --test main -- model::
	@sort $(TEST_MODELS)
	@awk '{ states += $$2 } END { print NR " searches, " states " states" }' $(TEST_MODELS)

# Attacks for so many MINUTES (6), from this SEED on (any), on SERVERS=one,three,five,sentinel,cluster,local (all of them): tests/chaos.
# Each prints its figures and its seed; from its seed it can be repeated, as far as the scheduler allows. If python3 has redis-py
# (python3-redis), redis-py takes part, on one Redis that remembers.
chaos: deps
	MINUTES=$(MINUTES) SEED=$(SEED) SERVERS=$(SERVERS) $(CARGO) test --locked --test main -- --ignored --nocapture chaos::as_long_as_asked

# Hostile input for so many MINUTES (3), from this SEED on (any): arguments, variables, redlock.conf, replies, records. A trial that fails
# tells its own seed.
fuzz: deps
	MINUTES=$(MINUTES) SEED=$(SEED) $(CARGO) test --locked --test main -- --ignored --nocapture --test-threads=1 fuzz::as_long_as_asked

# Breaks the program in COUNT (50) places, one after the other, drawn by SEED (1) in the scripts or, with OF=rust, in src: which tests
# notice each (tests/mutants.sh). A minute for most, more for those that live. cargo-mutants lists those of Rust.
OF = lua
COUNT = 50
mutants: export PATH := $(CURDIR)/target/cargo-mutants/bin:$(PATH)
mutants: deps
	[ $(OF) = lua ] || command -v cargo-mutants >/dev/null || $(CARGO) install --locked --root target/cargo-mutants cargo-mutants
	tests/mutants.sh --drawn $(OF) $(COUNT) $(or $(SEED),1)

# Measures the promises that a slow or busy machine cannot keep: how long before the expiry large jobs and those of short leases are
# dead, how soon a released lock is taken, how soon an interrupted call ends (tests/alone). On a quiet machine all of it passes.
# With MARGIN_ROUNDS=200 each case is tried so often, with INTERRUPT_ROUNDS=1000 so many calls are interrupted.
margins: deps
	$(CARGO) test --locked --test main -- --nocapture --test-threads=1 alone::

lint:
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets --locked -- -D warnings

# Peers that are not installed are left out: flock, etcd and etcdctl, python3 with redis. ONLY='run crowd' measures only some of it
# (benches/compare.rs). The program that would be installed is measured; cargo builds another in its place.
bench: build deps
	cp $(BINARY) target/redlock
	$(ANYWHERE) REDLOCK=$(CURDIR)/target/redlock $(CARGO) bench --locked -- $(ONLY)

# Very many at once, on servers of their own: 100 runs, 300 waiters, 1,000 locks, places and readers, 30 jobs that renew eight times a
# second; ten times as many with LOAD=full (6,000 processes, 6 GB). Prints what each costs, and fails if a call fails, a lease is lost,
# a script takes 5 ms, or memory, descriptors or connections grow.
load: build deps
	cp $(BINARY) target/redlock
	$(ANYWHERE) REDLOCK=$(CURDIR)/target/redlock LOAD=$(LOAD) $(CARGO) bench --locked -- load

# Writes man/ and completions/ anew from src/cli.rs with man/src/ and completions/src/.
man:
	WRITE_DOCS=1 $(CARGO) test --locked --test main up_to_date

# Installs what `make` has built, and builds nothing: root may have no cargo.
install:
	@[ -x $(BINARY) ] || { echo "There is no $(BINARY) to install yet: run make, then make install." >&2; exit 1; }
	$(INSTALL) -d $(DEST)/bin $(DEST)/share/man/man1 $(DEST)/share/bash-completion/completions \
	    $(DESTDIR)$(ZSH_COMPLETIONS) $(DEST)/share/fish/vendor_completions.d $(DEST)/share/doc/redlock
	$(INSTALL) -m 755 $(BINARY) $(DEST)/bin/redlock
	$(INSTALL) -m 644 man/*.1 $(DEST)/share/man/man1
	$(INSTALL) -m 644 completions/redlock.bash $(DEST)/share/bash-completion/completions/redlock
	$(INSTALL) -m 644 completions/_redlock $(DESTDIR)$(ZSH_COMPLETIONS)/_redlock
	$(INSTALL) -m 644 completions/redlock.fish $(DEST)/share/fish/vendor_completions.d/redlock.fish
	$(INSTALL) -m 644 LICENSE README.md CHANGELOG.md man/package/redlock.conf $(DEST)/share/doc/redlock

uninstall:
	rm -f $(DEST)/bin/redlock $(addprefix $(DEST)/share/,$(patsubst man/%,man/man1/%,$(wildcard man/*.1)) \
	    bash-completion/completions/redlock fish/vendor_completions.d/redlock.fish) $(DESTDIR)$(ZSH_COMPLETIONS)/_redlock
	rm -rf $(DEST)/share/doc/redlock

# Packages of a static binary with all that belongs to it. Cargo.toml says who answers for them.
OUT = target
MACHINE := $(shell uname -m)
XZ = 6
NAME = redlock-$(VERSION)-$(MACHINE)-linux
DOC = share/doc/redlock

# $(1): the root to install in, $(2): variables of make install, $(3): the prefix.
define stage
	rm -rf $(1)
	$(MAKE) install DESTDIR=$(1) PREFIX=$(3) $(2)
	CARGO="$(CARGO)" man/package/third-party-licenses > $(1)$(3)/$(DOC)/third-party-licenses.txt
endef

# No umask changes the modes.
modes = chmod -R u=rwX,go=rX

# The sums of all packages of this version that were made.
sums = cd $(OUT) && find . -maxdepth 1 -type f -name 'redlock[-_]$(VERSION)-*.*' -printf '%f\n' | sort | xargs sha256sum > SHA256SUMS

# For each machine without a package manager of these: to be unpacked in /usr/local or the like.
dist:
	$(STATIC)
	$(call stage,$(OUT)/$(NAME),,)
	$(modes) $(OUT)/$(NAME)
	cd $(OUT) && tar --format=ustar --sort=name --mtime=@$$SOURCE_DATE_EPOCH --owner=root:0 --group=root:0 -cf $(NAME).tar $(NAME) && \
	    gzip -9nf $(NAME).tar
	@$(sums)
	@echo "made $(OUT)/$(NAME).tar.gz"

# For Debian, Ubuntu and their kin.
deb: ARCHITECTURE = $(shell dpkg --print-architecture)
deb: deps
	$(STATIC)
	$(call stage,$(OUT)/deb,ZSH_COMPLETIONS=/usr/share/zsh/vendor-completions,/usr)
	cd $(OUT)/deb && mkdir -p DEBIAN etc usr/share/lintian/overrides && mv usr/$(DOC)/redlock.conf etc && \
	    mv usr/$(DOC)/LICENSE usr/$(DOC)/copyright && mv usr/$(DOC)/CHANGELOG.md usr/$(DOC)/changelog
	$(INSTALL) -m 644 man/package/lintian-overrides $(OUT)/deb/usr/share/lintian/overrides/redlock
	printf 'redlock (%s-1) unstable; urgency=medium\n\n  * Release %s; its changes are in changelog.gz.\n\n -- %s  %s\n' $(VERSION) \
	    $(VERSION) '$(MAINTAINER)' "$$(LC_ALL=C date -uRd @$$SOURCE_DATE_EPOCH)" > $(OUT)/deb/usr/$(DOC)/changelog.Debian
	cd $(OUT)/deb/usr/share && gzip -9n man/man1/*.1 doc/redlock/changelog doc/redlock/changelog.Debian doc/redlock/third-party-licenses.txt
	size=$$(find $(OUT)/deb -type f -printf '%s\n' | awk '{ sum += int(($$1 + 1023) / 1024) } END { print sum }'); \
	sed -e 's/@VERSION@/$(VERSION)/' -e 's/@ARCHITECTURE@/$(ARCHITECTURE)/' -e "s/@SIZE@/$$size/" -e 's/@MAINTAINER@/$(MAINTAINER)/' \
	    $(if $(HOMEPAGE),-e '/^Section/i Homepage: $(HOMEPAGE)') man/package/control > $(OUT)/deb/DEBIAN/control
	echo /etc/redlock.conf > $(OUT)/deb/DEBIAN/conffiles
	cd $(OUT)/deb && find etc usr -type f | LC_ALL=C sort | xargs md5sum > DEBIAN/md5sums
	$(modes) $(OUT)/deb
	DPKG_DEB_THREADS_MAX=1 dpkg-deb --root-owner-group -Zxz -z$(XZ) --build $(OUT)/deb $(OUT)
	@$(sums)

# For Fedora, RHEL, SUSE and their kin.
rpm: deps
	$(STATIC)
	$(call stage,$(OUT)/rpm,,/usr)
	cd $(OUT)/rpm && mkdir -p etc usr/share/licenses/redlock && mv usr/$(DOC)/redlock.conf etc && \
	    mv usr/$(DOC)/LICENSE usr/$(DOC)/third-party-licenses.txt usr/share/licenses/redlock && gzip -9n usr/share/man/man1/*.1
	$(modes) $(OUT)/rpm
	rpmbuild -bb --quiet --target $(MACHINE) --define '_topdir $(abspath $(OUT))/rpmbuild' --define '_rpmdir $(abspath $(OUT))' \
	    --define '_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' --define '_binary_payload w$(XZ).xzdio' \
	    --define 'staged $(abspath $(OUT))/rpm' --define 'version_ $(VERSION)' --define 'maintainer $(MAINTAINER)' \
	    $(if $(HOMEPAGE),--define 'home $(HOMEPAGE)') man/package/redlock.spec
	@$(sums)
	@echo "made $(OUT)/redlock-$(VERSION)-1.$(MACHINE).rpm"

# To release: the version in Cargo.toml and the day in the newest heading of CHANGELOG.md, make man, make keep-release, a commit;
# make test lint model chaos check-packages reproducible; a tag v$(VERSION), of which .github/workflows/ci.yml makes a release with all that
# stands in SHA256SUMS; cargo publish.
release:
	$(MAKE) dist
	$(MAKE) deb
	$(MAKE) rpm

# The distributions' own checkers judge the packages. Intended findings stand in man/package with their reasons.
check-packages: deps release
	lintian --allow-root --fail-on error,warning $(OUT)/redlock_$(VERSION)-1_*.deb
	rpmlint --strict --config man/package/rpmlint.toml $(OUT)/redlock-$(VERSION)-1.$(MACHINE).rpm

# Makes all packages of the last commit twice and compares them: in another directory, of a user with another home and umask, and packed
# two days later (rustc hangs in a false time, so what it is called by is in this one). This takes as long as two builds.
TWICE = $(abspath $(OUT))/twice
reproducible: deps
	rm -rf $(TWICE) && mkdir -p $(TWICE)/bin $(TWICE)/home/registry
	for tool in cargo rustc; do \
	    printf '#!/bin/sh\nexec env -u LD_PRELOAD %s "$$@"\n' "$$(command -v $$tool)" > $(TWICE)/bin/$$tool; \
	done
	chmod +x $(TWICE)/bin/*
	git clone -q . $(TWICE)/first && git clone -q . $(TWICE)/home/second
	$(MAKE) -C $(TWICE)/first release
	cp -R $(CARGO_DIRECTORY)/registry/index $(CARGO_DIRECTORY)/registry/cache $(TWICE)/home/registry
	umask 077 && export RUSTUP_HOME=$${RUSTUP_HOME:-$$HOME/.rustup} HOME=$(TWICE)/home CARGO_HOME=$(TWICE)/home && \
	    PATH=$(TWICE)/bin:$$PATH faketime '+2 days' $(MAKE) -C $(TWICE)/home/second release
	diff $(TWICE)/first/target/SHA256SUMS $(TWICE)/home/second/target/SHA256SUMS

# Keeps what this version sends to its servers, for the test that runs it beside later versions. Once for each release, right before it.
keep-release:
	WRITE_RELEASE=1 $(CARGO) test --locked --test main releases::what_this_version_sends_can_be_kept

clean:
	$(CARGO) clean

# Programs that are needed besides, and the package that brings each.
DEMO_NEEDS = redis-server:redis-server redis-cli:redis-tools setsid:util-linux pgrep:procps
NEEDS = $(DEMO_NEEDS) openssl:openssl mandoc:mandoc zsh:zsh fish:fish /usr/share/bash-completion/bash_completion:bash-completion \
    dpkg-deb:dpkg rpmbuild:rpm perl:perl-base
demo bench load: NEEDS = $(DEMO_NEEDS)
mutants: NEEDS += patch:patch
deb: NEEDS = dpkg-deb:dpkg
rpm: NEEDS = rpmbuild:rpm
check-packages: NEEDS = lintian:lintian rpmlint:rpmlint
reproducible: NEEDS = faketime:faketime

# Without root and sudo, missing packages are named instead.
SUDO := $(shell [ "$$(id -u)" = 0 ] || command -v sudo)
CAN_INSTALL := $(shell command -v apt-get >/dev/null && { [ "$$(id -u)" = 0 ] || command -v sudo >/dev/null; } && echo yes)

deps:
	@missing=; \
	for need in $(NEEDS); do \
	    file=$${need%:*}; \
	    command -v "$$file" >/dev/null || [ -e "$$file" ] || missing="$$missing $${need#*:}"; \
	done; \
	[ -z "$$missing" ] && exit 0; \
	[ "$(CAN_INSTALL)" = yes ] || { echo "This needs packages that are missing; please install:$$missing" >&2; exit 1; }; \
	echo "Installing packages that this needs, by $(strip $(SUDO) apt-get):$$missing"; \
	$(SUDO) apt-get update -q && $(SUDO) env DEBIAN_FRONTEND=noninteractive \
	    apt-get install -q -y --no-install-recommends $$missing
