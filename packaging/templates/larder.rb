# Homebrew formula of the static program. `brew install --formula ./larder.rb` installs it from this file.
class Larder < Formula
  desc "Names for IP traffic, a DNS server and an HTTP cache"
  homepage "@URL@"
  url "@URL@/larder-@VERSION@-x86_64-linux-static.tar.gz"
  version "@VERSION@"
  sha256 "@SHA256_STATIC@"
  license any_of: ["MIT", "Apache-2.0"]

  # larder's programs need Linux: they use its sockets, rings and capabilities.
  depends_on :linux
  depends_on arch: :x86_64

  def install
    bin.install "usr/bin/larder"
    man1.install Dir["usr/share/man/man1/*"]
    bash_completion.install "usr/share/bash-completion/completions/larder"
    zsh_completion.install "usr/share/zsh/vendor-completions/_larder"
    fish_completion.install "usr/share/fish/vendor_completions.d/larder.fish"
    pkgshare.install "etc/larder/larder.toml", "usr/share/larder/grafana", "usr/share/larder/prometheus"
  end

  def caveats
    <<~EOS
      All settings with their defaults are in #{opt_pkgshare}/larder.toml.
      larder reads its settings from ~/.config/larder/larder.toml or /etc/larder/larder.toml.
    EOS
  end

  test do
    assert_match "larder #{version}", shell_output("#{bin}/larder --version")
  end
end
