# The targets that people use. What they need besides Rust, make and gcc is installed by `deps` where that can be done.

PREFIX ?= /usr/local
CARGO ?= cargo
INSTALL ?= install
DEST = $(DESTDIR)$(PREFIX)

# Where this is neither root nor has sudo, what is missing is named instead.
SUDO := $(shell [ "$$(id -u)" = 0 ] || command -v sudo)
CAN_INSTALL := $(shell command -v apt-get >/dev/null 2>&1 && { [ "$$(id -u)" = 0 ] || command -v sudo >/dev/null; } && echo yes)

.PHONY: build demo test lint bench install man clean deps

# Linked statically, at a fixed address, where that can be done: it starts in half the time. (Flags for the last step only:
# what cargo passes to all crates would reach its own helpers too.)
build:
	$(CARGO) rustc --release --locked --bin redlock -- -C target-feature=+crt-static -C relocation-model=static || \
	    $(CARGO) build --release --locked

demo: build deps
	@bash tests/demo.sh target/release/redlock

# make test SERVER=/path/to/valkey-server tests with that server instead of the redis-server in PATH.
ifdef SERVER
export REDLOCK_TEST_SERVER := $(abspath $(or $(shell command -v $(SERVER)),$(error $(SERVER) cannot be executed)))
endif

# What measures how late something is needs the machine for itself.
TIMED = margins:: interrupts:: unread_output:: storm within_50_ms
test: deps
	$(CARGO) test --locked -- $(addprefix --skip ,$(TIMED))
	$(CARGO) test --locked --test main -- --test-threads=1 $(TIMED)

lint:
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets --locked -- -D warnings

# Peers that are not installed are left out: flock, etcd and etcdctl, python3 with redis.
# What is measured is what would be installed; cargo builds another one in its place.
bench: build deps
	cp target/release/redlock target/redlock
	REDLOCK=$(CURDIR)/target/redlock $(CARGO) bench --locked

# Writes man/ and completions/ anew from src/cli.rs and tests/docs/.
man:
	REDLOCK_WRITE_DOCS=1 $(CARGO) test --locked --test main up_to_date

install: build
	$(INSTALL) -d $(DEST)/bin $(DEST)/share/man/man1 $(DEST)/share/bash-completion/completions \
	    $(DEST)/share/zsh/site-functions $(DEST)/share/fish/vendor_completions.d
	$(INSTALL) -m 755 target/release/redlock $(DEST)/bin/redlock
	$(INSTALL) -m 644 man/*.1 $(DEST)/share/man/man1
	$(INSTALL) -m 644 completions/redlock.bash $(DEST)/share/bash-completion/completions/redlock
	$(INSTALL) -m 644 completions/_redlock $(DEST)/share/zsh/site-functions/_redlock
	$(INSTALL) -m 644 completions/redlock.fish $(DEST)/share/fish/vendor_completions.d/redlock.fish

clean:
	$(CARGO) clean

# Each line: what must be there, and the package that brings it.
deps:
	@missing=; \
	need() { command -v "$$1" >/dev/null 2>&1 || missing="$$missing $$2"; }; \
	need redis-server redis-server; \
	need redis-cli redis-tools; \
	need openssl openssl; \
	need mandoc mandoc; \
	need setsid util-linux; \
	need ps procps; \
	[ -z "$$missing" ] && exit 0; \
	if [ "$(CAN_INSTALL)" = yes ]; then \
	    $(SUDO) apt-get update -q && $(SUDO) env DEBIAN_FRONTEND=noninteractive \
	        apt-get install -q -y --no-install-recommends $$missing; \
	elif command -v brew >/dev/null 2>&1; then \
	    echo "missing:$$missing; brew install redis mandoc"; exit 1; \
	else \
	    echo "missing:$$missing; please install"; exit 1; \
	fi
