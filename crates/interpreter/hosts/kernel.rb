# The Ruby kernel host. It speaks the frames of `kernel::frame` on descriptor 0, which it moves out of the way of user code.
# Cells share the top level: its local variables, its methods, its constants.
require 'json'

module SandcoveKernel
  LINK = IO.for_fd(0).dup.tap { |link| link.binmode && link.sync = true }
  $stdin.reopen(File::NULL)
  # Output is sent even if the cell never returns control.
  $stdout.sync = $stderr.sync = true

  # Cells and output are UTF-8 in any locale.
  Encoding.default_external = Encoding::UTF_8

  class << self
    def serve
      @count = 0
      @running = false
      Signal.trap('INT') { Thread.main.raise(Interrupt, 'the cell was interrupted') if @running }
      prefer_as_victim
      send_frame('hello', Process.pid)
      while (head = LINK.gets)
        kind, length = head.split
        take(kind, LINK.read(length.to_i))
      end
    end

    private

    def take(kind, payload)
      case kind
      when 'execute' then execute(payload.force_encoding(Encoding::UTF_8).scrub)
      when 'env' then ENV.store(*payload.split('=', 2))
      when 'unenv' then ENV.delete(payload)
      when 'cwd' then Dir.chdir(payload)
      end
    rescue SystemCallError
      # A missing directory is no error.
    end

    def execute(code)
      send_frame('started', @count += 1)
      leaving = run(code)
      $stdout.flush
      $stderr.flush
      send_frame('done', leaving ? 'leaving' : '')
    rescue Interrupt
      # The interrupt came after the end of the cell.
      send_frame('done')
    end

    # Whether the cell asked the kernel to end.
    def run(code)
      @running = true
      value = TOPLEVEL_BINDING.eval(code, "cell #{@count}", 1)
      text = value.nil? ? nil : value.inspect
      @running = false
      send_frame('result', JSON.generate(main: true, data: { 'text/plain' => clean(text) })) if text
      false
    rescue SystemExit => error
      @running = false
      send_error('SystemExit', error.status.to_s, '') unless error.success?
      true
    rescue Exception => error # rubocop:disable Lint/RescueException
      @running = false
      send_error(error.class.name || 'Exception', message_of(error), trace_of(error))
      false
    end

    def message_of(error)
      error.message.to_s
    rescue StandardError => e
      e.class.name
    end

    # The error with its causes, as Ruby prints it, without the frames of this host.
    def trace_of(error)
      cause = error
      while cause
        lines = cause.backtrace
        cause.set_backtrace(lines.reject { |line| line.match?(/\A-e:\d+:in /) }) if lines && !cause.frozen?
        cause = cause.cause
      end
      error.full_message(highlight: false, order: :top).sub(/\A-e(?::\d+:in [`'].*?')?: /, '')
    rescue StandardError
      error.backtrace.to_a.join("\n")
    end

    def send_error(name, value, traceback)
      send_frame('error', JSON.generate(name: clean(name), value: clean(value), traceback: clean(traceback)))
    end

    def clean(text)
      text.encode(Encoding::UTF_8, invalid: :replace, undef: :replace).scrub
    end

    def send_frame(kind, payload = '')
      payload = payload.to_s.b
      LINK.write("#{kind} #{payload.bytesize}\n".b << payload)
    end

    def prefer_as_victim
      File.write('/proc/self/oom_score_adj', '500')
    rescue SystemCallError
      # The system then chooses which process to kill.
    end
  end

  # `fork` in a cell must not leave a second kernel behind.
  module Forks
    def _fork
      super.tap { |pid| LINK.close if pid.zero? }
    end
  end
  Process.singleton_class.prepend(Forks)
end

SandcoveKernel.serve
