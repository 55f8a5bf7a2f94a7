# The targets that people use. `make` needs Rust and gcc; `deps` installs what the other targets need, if it can.

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

.PHONY: build help demo test model chaos fuzz mutants margins check-page lint bench load install uninstall dist deb rpm release check-packages reproducible man picture keep-release clean deps

# Messages of panics name no directory of this machine. cargo does not get SOURCE_DATE_EPOCH: no crate contains the time, and `make dist`,
# which sets the variable, would build the crates with C code again after `make build`, which does not.
CARGO_DIRECTORY = $(or $(CARGO_HOME),$(HOME)/.cargo)
ANYWHERE = env -u SOURCE_DATE_EPOCH RUSTFLAGS="$$RUSTFLAGS --remap-path-prefix=$(CURDIR)=/redlock \
    --remap-path-prefix=$(CARGO_DIRECTORY)/registry/src=/crates \
    --remap-path-prefix=$$(rustc --print sysroot)/lib/rustlib/src/rust=/rustc/$$(rustc -vV | sed -n 's/^commit-hash: //p')"

# Links redlock statically, at a fixed address: redlock then starts in half the time. (The flags are for redlock's own crate only: flags
# for all crates would reach build scripts and procedural macros too.)
STATIC = $(ANYWHERE) $(CARGO) rustc --release --locked --bin redlock -- -C target-feature=+crt-static -C relocation-model=static

build dist deb rpm: export REDLOCK_VERSION = $(VERSION)$(COMMIT:%= (%))

# All files of a package have the time of the last commit; without a repository, the time of CHANGELOG.md.
dist deb rpm: export SOURCE_DATE_EPOCH := $(or $(SOURCE_DATE_EPOCH),$(shell \
    [ -e .git ] && git log -1 --format=%ct 2>/dev/null || date -r CHANGELOG.md +%s))

# For another architecture, such as aarch64, with its cross compiler (Debian: gcc-aarch64-linux-gnu):
#     rustup target add aarch64-unknown-linux-gnu
#     CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
#         cargo rustc --release --locked --bin redlock --target aarch64-unknown-linux-gnu -- -C target-feature=+crt-static
build: ## build target/release/redlock, one static file (the default)
	$(STATIC) || $(ANYWHERE) $(CARGO) build --release --locked

help: ## list these targets
	@awk -F ':.* ## ' '/^[a-z-]+:.* ## / { printf "%-16s%s\n", $$1, $$2 }' Makefile

demo: build deps ## show the main job on a server that it starts itself
	@bash tests/demo.sh $(BINARY)

# make test SERVER=/path/to/valkey-server tests with that server instead of the redis-server in PATH.
ifdef SERVER
export TEST_SERVER := $(abspath $(or $(shell command -v $(SERVER)),$(error $(SERVER) cannot be executed)))
endif

# Most tests wait most of their time, so three run on each core. The models run by themselves: they compute, and fill the memory, which
# would slow down each fork by another test. The timed tests run apart from the others: beside a busy machine they failed.
TIMED = run::margins run::names nodes::faults::so_it_is_by_tls a_job_is_gone_before_the_lease
THREADS = $(shell expr 3 \* $$(nproc))
test: deps ## run all tests
	$(APART) $(CARGO) test --locked --test main -- model::
	$(APART) $(CARGO) test --locked -- --skip model:: --skip alone:: --skip chaos:: $(TIMED:%=--skip %) \
	    --test-threads=$(THREADS)
	$(APART) $(CARGO) test --locked --test main -- $(TIMED) --test-threads=2
	$(APART) $(CARGO) test --locked --test main -- chaos:: --test-threads=3

# Runs tests in a session of their own; on ^C the trap ends them. Under Linux 6.18 with autogroup, busy loops in the
# session of a terminal at times stop all other processes for seconds, even kernel threads
# (git.kernel.org/torvalds/c/b3d99f43c72b mends this).
APART = sh -c 'setsid "$$@" & trap "kill -- -$$!" HUP INT QUIT TERM; wait $$!' --

# Runs all models side by side. Prints for each search its states, its time, its bounds, and how far it went, or after how many steps it
# found the fault of a left-out clause. LARGE=1 searches larger bounds too, which takes minutes and gigabytes.
model: export TEST_MODELS = $(CURDIR)/target/models
model: export LARGE_MODELS = $(LARGE)
model: deps ## run all models, and print what they searched
	@rm -f $(TEST_MODELS)
	$(if $(LARGE),,unset LARGE_MODELS;) $(CARGO) test --locked --test main -- model::
	@sort $(TEST_MODELS)
	@awk '{ states += $$2 } END { print NR " searches, " states " states" }' $(TEST_MODELS)

# Chaos (tests/chaos): attacks for MINUTES (6), beginning with SEED (drawn by chance), on SERVERS=one,three,five,sentinel,cluster,local
# (all of them). Each attack prints its figures and its seed, which repeats the attack, as far as the scheduler allows. If python3 has
# redis-py (python3-redis), redis-py takes part, on one Redis that forgets nothing.
chaos: deps ## attack locks from all sides at once for MINUTES
	MINUTES=$(MINUTES) SEED=$(SEED) SERVERS=$(SERVERS) $(CARGO) test --locked --test main -- --ignored --nocapture chaos::as_long_as_asked

# Hostile input for MINUTES (3), beginning with SEED (drawn by chance): arguments, variables, redlock.conf, replies, records. A trial that
# fails prints its own seed.
fuzz: deps ## send hostile input for MINUTES
	MINUTES=$(MINUTES) SEED=$(SEED) $(CARGO) test --locked --test main -- --ignored --nocapture --test-threads=1 fuzz::as_long_as_asked

# Breaks the program in COUNT (50) places, one after the other, drawn by SEED (1) in the scripts or, with OF=rust, in src, and prints which
# tests find each break (tests/mutants.sh). Most breaks take a minute; a break that no test finds takes longer. cargo-mutants lists the
# places in Rust.
OF = lua
COUNT = 50
mutants: export PATH := $(CURDIR)/target/cargo-mutants/bin:$(PATH)
mutants: deps ## break the program in COUNT places, and see which tests notice
	[ $(OF) = lua ] || command -v cargo-mutants >/dev/null || $(CARGO) install --locked --root target/cargo-mutants cargo-mutants
	tests/mutants.sh --drawn $(OF) $(COUNT) $(or $(SEED),1)

# Measures the promises that a slow or busy machine cannot keep: how long before the expiry large jobs, and jobs of short leases, are dead;
# how soon a released lock is taken; how soon an interrupted call ends (tests/alone). On a quiet machine all of these tests pass.
# MARGIN_ROUNDS=200 tries each case 200 times, INTERRUPT_ROUNDS=1000 interrupts 1,000 calls.
margins: deps ## measure what a slow or busy machine cannot keep
	$(CARGO) test --locked --test main -- --nocapture --test-threads=1 alone::

# Opens the page of `log --format html` in headless Chromium, on a phone, a laptop and a wide screen, light, dark and printed (tests/page.rs).
# The pictures are in target/page.
check-page: deps ## look at the page of log in a browser
	$(CARGO) test --locked --test main -- --ignored page::

lint: ## run rustfmt and clippy
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets --locked -- -D warnings

# Leaves out peers that are not installed: flock, etcd and etcdctl, python3 with redis. ONLY='run crowd' runs only these
# sections of tests/bench.rs. The measured program is a copy of the binary that `make install` installs, since cargo
# bench builds another binary in its place.
bench: build deps ## compare with other programs; ONLY=SECTION
	cp $(BINARY) target/redlock
	$(ANYWHERE) REDLOCK=$(CURDIR)/target/redlock $(CARGO) bench --locked -- $(ONLY)

# Very many processes at once, on servers of their own: 100 runs, 300 waiters, 1,000 locks, slots and readers, 30 jobs
# that renew eight times a second; ten times as many with LOAD=full (6,000 processes, 6 GB). Prints what each costs, and
# fails if a call fails, a lease is lost, a script of `status` or `log` takes 5 ms, or memory, descriptors or connections
# grow.
load: build deps ## run thousands of processes at once; LOAD=full
	cp $(BINARY) target/redlock
	$(ANYWHERE) REDLOCK=$(CURDIR)/target/redlock LOAD=$(LOAD) $(CARGO) bench --locked -- load

# Generates man/ and completions/ from src/cli/mod.rs, man/src/ and completions/src/.
man: ## make man/ and completions/ from their sources
	WRITE_DOCS=1 $(CARGO) test --locked --test main up_to_date

# Draws README's picture from a real run of two hosts, and takes the one of the page from those of check-page.
picture: build deps ## draw docs/picture.svg and docs/page.png
	tests/picture.sh $(BINARY) docs/picture.svg
	$(CARGO) test --locked --test main -- --ignored page::the_page_fits
	cp target/page/readme-1000-screen-light.png docs/page.png

# Installs what `make` has built, and builds nothing: root may have no cargo.
install: ## install what make has built below PREFIX (/usr/local)
	@[ -x $(BINARY) ] || { echo "There is no $(BINARY) to install yet: run make, then make install." >&2; exit 1; }
	$(INSTALL) -d $(DEST)/bin $(DEST)/share/man/man1 $(DEST)/share/bash-completion/completions \
	    $(DESTDIR)$(ZSH_COMPLETIONS) $(DEST)/share/fish/vendor_completions.d $(DEST)/share/doc/redlock/docs
	$(INSTALL) -m 755 $(BINARY) $(DEST)/bin/redlock
	$(INSTALL) -m 644 man/*.1 $(DEST)/share/man/man1
	$(INSTALL) -m 644 completions/redlock.bash $(DEST)/share/bash-completion/completions/redlock
	$(INSTALL) -m 644 completions/_redlock $(DESTDIR)$(ZSH_COMPLETIONS)/_redlock
	$(INSTALL) -m 644 completions/redlock.fish $(DEST)/share/fish/vendor_completions.d/redlock.fish
	$(INSTALL) -m 644 LICENSE README.md CHANGELOG.md man/package/redlock.conf $(DEST)/share/doc/redlock
	$(INSTALL) -m 644 docs/* $(DEST)/share/doc/redlock/docs

uninstall: ## remove what make install has installed
	rm -f $(DEST)/bin/redlock $(addprefix $(DEST)/share/,$(patsubst man/%,man/man1/%,$(wildcard man/*.1)) \
	    bash-completion/completions/redlock fish/vendor_completions.d/redlock.fish) $(DESTDIR)$(ZSH_COMPLETIONS)/_redlock
	rm -rf $(DEST)/share/doc/redlock

# Packages of the static binary, with man pages, completions, documents and licenses. Cargo.toml names the maintainer.
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

# Sets the modes of all files, whatever the umask.
modes = chmod -R u=rwX,go=rX

# Writes the checksums of all packages of this version that were made.
sums = cd $(OUT) && find . -maxdepth 1 -type f -name 'redlock[-_]$(VERSION)-*.*' -printf '%f\n' | sort | xargs sha256sum > SHA256SUMS

# For machines with neither dpkg nor rpm: to be unpacked in /usr/local or the like.
dist: ## make a tarball
	$(STATIC)
	$(call stage,$(OUT)/$(NAME),,)
	$(modes) $(OUT)/$(NAME)
	cd $(OUT) && tar --format=ustar --sort=name --mtime=@$$SOURCE_DATE_EPOCH --owner=root:0 --group=root:0 -cf $(NAME).tar $(NAME) && \
	    gzip -9nf $(NAME).tar
	@$(sums)
	@echo "made $(OUT)/$(NAME).tar.gz"

# For Debian, Ubuntu and their derivatives.
deb: ARCHITECTURE = $(shell dpkg --print-architecture)
deb: deps ## make a package for Debian
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

# For Fedora, RHEL, SUSE and their derivatives.
rpm: deps ## make a package for Fedora, RHEL and SUSE
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

# To release: set the version in Cargo.toml; turn "Unreleased" in CHANGELOG.md into version and day; make man; make
# keep-release; commit; make test lint model chaos check-packages reproducible; tag v$(VERSION), from which
# .github/workflows/ci.yml makes a release with the packages in SHA256SUMS; cargo publish.
release: ## make all packages
	$(MAKE) dist
	$(MAKE) deb
	$(MAKE) rpm

# The distributions' own checkers judge the packages. man/package has the intended findings, with their reasons.
check-packages: deps release ## let lintian and rpmlint judge the packages
	lintian --allow-root --fail-on error,warning $(OUT)/redlock_$(VERSION)-1_*.deb
	rpmlint --strict --config man/package/rpmlint.toml $(OUT)/redlock-$(VERSION)-1.$(MACHINE).rpm

# Makes all packages of the last commit twice, and compares them. The second time the directory, the home and the umask are others, and the
# date is two days later. (rustc hangs under a false date, so the scripts in $(TWICE)/bin give cargo and rustc the true date.) This takes
# as long as two builds.
TWICE = $(abspath $(OUT))/twice
reproducible: deps ## make all packages twice, and compare them
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

# Records the requests of this version, for the test that mixes them with those of later versions. Run it once for each release, right
# before the release.
keep-release: ## record the requests of this version, once for each release
	WRITE_RELEASE=1 $(CARGO) test --locked --test main releases::what_this_version_sends_can_be_kept

clean: ## remove target/
	$(CARGO) clean

# The programs that the targets need, each with the Debian package that has it.
DEMO_NEEDS = redis-server:redis-server redis-cli:redis-tools setsid:util-linux pgrep:procps
NEEDS = $(DEMO_NEEDS) openssl:openssl mandoc:mandoc zsh:zsh fish:fish /usr/share/bash-completion/bash_completion:bash-completion \
    dpkg-deb:dpkg rpmbuild:rpm rpm:rpm perl:perl-base less:less vi:vim-tiny strace:strace
demo bench load: NEEDS = $(DEMO_NEEDS)
mutants: NEEDS += patch:patch
check-page: NEEDS = $(DEMO_NEEDS) chromium:chromium
deb: NEEDS = dpkg-deb:dpkg
rpm: NEEDS = rpmbuild:rpm
picture: NEEDS = $(DEMO_NEEDS) ip:iproute2 script:bsdutils unshare:util-linux chromium:chromium
check-packages: NEEDS = lintian:lintian rpmlint:rpmlint
reproducible: NEEDS = faketime:faketime

# Without apt-get, or without root and sudo, the missing packages are named instead.
SUDO := $(shell [ "$$(id -u)" = 0 ] || command -v sudo)
CAN_INSTALL := $(shell command -v apt-get >/dev/null && { [ "$$(id -u)" = 0 ] || command -v sudo >/dev/null; } && echo yes)

deps: ## install what the other targets need
	@missing=; \
	for need in $(NEEDS); do \
	    file=$${need%:*}; \
	    command -v "$$file" >/dev/null || [ -e "$$file" ] || missing="$$missing $${need#*:}"; \
	done; \
	[ -z "$$missing" ] && exit 0; \
	[ "$(CAN_INSTALL)" = yes ] || { echo "This needs packages that are missing: apt-get install$$missing" >&2; exit 1; }; \
	echo "Installing packages that this needs, by $(strip $(SUDO) apt-get):$$missing"; \
	$(SUDO) apt-get update -q && $(SUDO) env DEBIAN_FRONTEND=noninteractive \
	    apt-get install -q -y --no-install-recommends $$missing
