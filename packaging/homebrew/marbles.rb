# packaging/release puts in what stands between @.
class Marbles < Formula
  desc "Scheduler and monitor of jobs that never loses track of a run"
  homepage "@HOMEPAGE@"
  version "@VERSION@"
  license "MIT"

  on_macos do
    on_arm do
      url "@URL@/marbles-@VERSION@-darwin-arm64.tar.gz"
      sha256 "@SHA256_DARWIN_ARM64@"
    end
    on_intel do
      url "@URL@/marbles-@VERSION@-darwin-amd64.tar.gz"
      sha256 "@SHA256_DARWIN_AMD64@"
    end
  end

  on_linux do
    on_arm do
      url "@URL@/marbles-@VERSION@-linux-arm64.tar.gz"
      sha256 "@SHA256_LINUX_ARM64@"
    end
    on_intel do
      url "@URL@/marbles-@VERSION@-linux-amd64.tar.gz"
      sha256 "@SHA256_LINUX_AMD64@"
    end
  end

  def install
    bin.install "marbles"
    man1.install Dir["man/man1/*.1"]
    man5.install Dir["man/man5/*.5"]
    bash_completion.install "completions/marbles.bash" => "marbles"
    zsh_completion.install "completions/_marbles"
    fish_completion.install "completions/marbles.fish"
  end

  # As launchd/com.foundry.marbles.plist, which "marbles service install" writes: one of the two, not both.
  service do
    run [opt_bin/"marbles", "run"]
    keep_alive true
    process_type :background
    working_dir Dir.home
    environment_variables PATH: std_service_path_env
    log_path var/"log/marbles.log"
    error_log_path var/"log/marbles.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/marbles --version")
    (testpath/"jobs.yaml").write <<~YAML
      workflows: {hello: {run: echo hello}}
      schedules: [{run: hello, every: 1h}]
    YAML
    assert_match "hello", shell_output("#{bin}/marbles --source #{testpath} list")
  end
end
