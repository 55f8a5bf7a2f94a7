# Draws mutants: perl tests/mutants.pl rust|lua COUNT SEED DIRECTORY writes 1.diff and so on into DIRECTORY, with a
# description of the change behind +++. In Rust cargo-mutants lists the places, without those of the output, cli/mod.rs and
# doctor. In Lua a comparison is turned round or moved by one, `and`, `or` or `not` is changed, a number raised by one,
# a call left out, or a branch never taken.
use strict;
use warnings;

my ($language, $count, $seed, $directory) = @ARGV;
my %turned = (
    '==' => ['~='], '<' => ['>=', '<='], '<=' => ['>', '<'], 'and' => ['or'], 'not' => [''],
    '~=' => ['=='], '>' => ['<=', '>='], '>=' => ['<', '>'], 'or' => ['and'],
);
my @all;

sub break_lua {
    my ($file) = @_;
    open my $in, '<', $file or die "$file: $!";
    while (my $line = <$in>) {
        chomp $line;
        my ($code, $comment) = $line =~ /^(.*?)( *--.*)?$/;
        my @changed;
        my $add = sub { my ($at, $end, $new) = @_; push @changed, substr($code, 0, $at) . $new . substr($code, $end) };
        while ($code =~ /(?<= )([=~<>]=|[<>]|and|or)(?= )|\b(not) /g) {
            my $old = $1 // $2;
            $add->($-[0], $-[0] + length $old, $_) for @{$turned{$old}};
        }
        $add->($-[0], $+[0], $& + 1) while $code =~ /(?<![\w\\])\d+\b/g;
        $add->($-[1], $+[1], 'false') while $code =~ /\bif (.*?) then\b/g;
        push @changed, '' if $code =~ /^ *[a-z_.]+(\((?:[^()]|(?1))*\)) *$/;
        $comment //= '';
        push @all, map "--- $file\n+++ $file:$.: `$line` becomes `$_`\n@@ -$. +$. @@\n-$line\n+$_$comment\n", @changed;
    }
}

if ($language eq 'lua') {
    break_lua($_) for sort glob 'src/lock/{history,scripts}/*.lua';
} else {
    my $list = `cargo mutants --list --diff` or die "cargo-mutants is missing: cargo install cargo-mutants\n";
    while ($list =~ m{^(src/.*)\n(--- .*\n)\+\+\+ .*\n((?:[-+@ ].*\n)+)}mg) {
        push @all, "$2+++ $1\n$3" if $1 !~ m{^src/(?:output|cli\.rs|doctor/)};
    }
}
srand $seed;
for my $number (1 .. $count) {
    my ($drawn) = splice @all, rand @all, 1;
    open my $out, '>', "$directory/$number.diff" or die "$directory: $!";
    print $out $drawn;
}
