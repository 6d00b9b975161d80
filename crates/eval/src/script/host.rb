# Runs the user's Ruby for the evaluator: one call at a time, a line of JSON each way. Calls come on descriptor 3 and replies leave
# on 4, so that nothing the user's code prints can be taken for a reply. A file stays loaded until its text
# changes.
require 'json'

module EvaluatorsHost
  class NotFound < StandardError; end

  CALLS = IO.for_fd(3, 'r:UTF-8')
  REPLIES = IO.for_fd(4, 'w:UTF-8')
  LOADED = {}
  INLINE = {}

  # The file as a module of its own, so that two files may have functions of one name.
  def self.loaded(path)
    text = File.binread(path)
    known = LOADED[path]
    return known[1..] if known && known[0] == text

    directory = File.dirname(File.absolute_path(path))
    $LOAD_PATH.unshift(directory) unless $LOAD_PATH.include?(directory)
    space = Module.new
    load(path, space)
    receiver = Object.new.extend(space)
    LOADED[path] = [text, receiver, space]
    [receiver, space]
  rescue Errno::ENOENT, Errno::EACCES
    raise NotFound, "cannot read #{path}"
  end

  def self.function(call)
    receiver, space = loaded(call['path'])
    owner, _, method = call['name'].to_s.rpartition('.')
    if !owner.empty? && space.const_defined?(owner)
      found = space.const_get(owner)
      return found.method(method) if found.respond_to?(method)
    end
    names = call['name'] ? [call['name']] : call['default']
    name = names.find { |each| receiver.respond_to?(each, true) }
    raise NotFound, "#{call['path']} has no function `#{names.join('` or `')}`" unless name

    receiver.method(name)
  end

  # An expression, or lines that return something.
  def self.inline(call)
    INLINE[[call['code'], call['parameters']]] ||= begin
      code = call['code']
      body = code.include?("\n") ? code : "return #{code}"
      eval("lambda { |#{call['parameters'].join(', ')}|\n#{body}\n}", TOPLEVEL_BINDING.dup, '<inline>', 0)
    end
  end

  # Providers get `(prompt, options, context)`, and those that only measure a text `(prompt, options)`.
  def self.arguments(call)
    return call['arguments'] if call['op'] != 'provider' || call['default'] == ['call_moderation_api']

    prompt, context, options = call['arguments']
    call['default'] == ['call_api'] ? [prompt, options, context] : [prompt, options]
  end

  def self.answer(line)
    call = JSON.parse(line)
    called = call['op'] == 'inline' ? inline(call) : function(call)
    JSON.generate({ value: called.call(*arguments(call)) })
  rescue NotFound => error
    JSON.generate({ error: { kind: 'not_found', message: error.message } })
  rescue Interrupt
    raise
  rescue Exception => error # rubocop:disable Lint/RescueException: `exit` in the user's code must not end the worker
    JSON.generate({ error: { kind: 'raised', message: "#{error.class}: #{error.message}", traceback: error.full_message(highlight: false) } })
  end

  def self.serve
    [CALLS, REPLIES].each { |stream| stream.close_on_exec = true }
    [$stdout, $stderr, REPLIES].each { |stream| stream.sync = true }
    REPLIES.puts('{"ready": true}')
    while (line = CALLS.gets)
      REPLIES.puts(answer(line))
    end
  end
end

EvaluatorsHost.serve
