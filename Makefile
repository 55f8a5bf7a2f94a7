# The targets that people use. `make` needs Rust and gcc; what the others need besides, `deps` installs where it can.

PREFIX ?= /usr/local
CARGO ?= cargo
INSTALL ?= install
DEST = $(DESTDIR)$(PREFIX)
ZSH_COMPLETIONS = $(PREFIX)/share/zsh/site-functions
BINARY = target/release/redlock

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
COMMIT := $(shell [ ! -e .git ] || git rev-parse --short HEAD 2>/dev/null)

.PHONY: build demo test margins lint bench install uninstall dist deb man clean deps

# Linked statically, at a fixed address: it starts in half the time. (Flags for the last step only: what cargo passes to all
# crates would reach its own helpers too.)
STATIC = $(CARGO) rustc --release --locked --bin redlock -- -C target-feature=+crt-static -C relocation-model=static

build dist deb: export REDLOCK_VERSION = $(VERSION)$(COMMIT:%= (%))
build:
	$(STATIC) || $(CARGO) build --release --locked

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
	$(CARGO) test --locked --test main -- model::
	$(CARGO) test --locked -- --skip model:: --skip alone:: --test-threads=$(THREADS)

# What a slow or busy machine cannot keep is measured, not tested: how long before the expiry large jobs and those of short leases are
# dead, how soon a released lock is taken, how soon an interrupted call ends (tests/alone). On a quiet machine all of it passes.
# With MARGIN_ROUNDS=200 each case is tried so often, with INTERRUPT_ROUNDS=1000 so many calls are interrupted.
margins: deps
	$(CARGO) test --locked --test main -- --nocapture --test-threads=1 alone::

lint:
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets --locked -- -D warnings

# Peers that are not installed are left out: flock, etcd and etcdctl, python3 with redis.
# What is measured is what would be installed; cargo builds another one in its place.
bench: build deps
	cp $(BINARY) target/redlock
	REDLOCK=$(CURDIR)/target/redlock $(CARGO) bench --locked

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
	$(INSTALL) -m 644 LICENSE README.md CHANGELOG.md $(DEST)/share/doc/redlock

uninstall:
	rm -f $(DEST)/bin/redlock $(addprefix $(DEST)/share/,$(patsubst man/%,man/man1/%,$(wildcard man/*.1)) \
	    bash-completion/completions/redlock fish/vendor_completions.d/redlock.fish) $(DESTDIR)$(ZSH_COMPLETIONS)/_redlock
	rm -rf $(DEST)/share/doc/redlock

# A static binary with all that belongs to it, to be unpacked in /usr/local or the like.
OUT = target
NAME = redlock-$(VERSION)-$(shell uname -m)-linux
dist:
	$(STATIC)
	rm -rf $(OUT)/$(NAME)
	$(MAKE) install DESTDIR=$(OUT)/$(NAME) PREFIX=
	tar -C $(OUT) --owner=0 --group=0 -czf $(OUT)/$(NAME).tar.gz $(NAME)
	@echo "made $(OUT)/$(NAME).tar.gz"

# The same as a package for Debian and Ubuntu.
deb:
	$(STATIC)
	rm -rf $(OUT)/deb
	$(INSTALL) -d $(OUT)/deb/DEBIAN
	$(MAKE) install DESTDIR=$(OUT)/deb PREFIX=/usr ZSH_COMPLETIONS=/usr/share/zsh/vendor-completions
	mv $(OUT)/deb/usr/share/doc/redlock/LICENSE $(OUT)/deb/usr/share/doc/redlock/copyright
	gzip -9n $(OUT)/deb/usr/share/man/man1/*.1
	printf '%s\n' 'Package: redlock' 'Version: $(VERSION)' "Architecture: $$(dpkg --print-architecture)" \
	    'Maintainer: the redlock authors' 'Section: utils' 'Priority: optional' \
	    'Description: distributed lock in Redis for shell scripts, cron jobs and CI' > $(OUT)/deb/DEBIAN/control
	dpkg-deb --build --root-owner-group $(OUT)/deb $(OUT)

clean:
	$(CARGO) clean

# What is needed besides, and the package that brings it.
DEMO_NEEDS = redis-server:redis-server redis-cli:redis-tools setsid:util-linux pgrep:procps
NEEDS = $(DEMO_NEEDS) openssl:openssl mandoc:mandoc zsh:zsh fish:fish /usr/share/bash-completion/bash_completion:bash-completion \
    dpkg-deb:dpkg
demo bench: NEEDS = $(DEMO_NEEDS)

# Where this is neither root nor has sudo, what is missing is named instead.
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
